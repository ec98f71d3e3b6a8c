"""Asks the configured search service and prints its hits. Arguments come as JSON on standard input."""
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request

LIMIT_BYTES = 4 * 1024 * 1024


def fail(text):
    print(text, file=sys.stderr)
    sys.exit(1)


def hits_of(answer):
    places = [("results",), ("items",), ("web", "results"), ("data",)]
    for place in places:
        found = answer
        for name in place:
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, list):
            return [hit for hit in found if isinstance(hit, dict)]
    return answer if isinstance(answer, list) else None


def first(hit, *names):
    for name in names:
        if isinstance(hit.get(name), str) and hit[name].strip():
            return " ".join(hit[name].split())
    return ""


def main():
    given = json.load(sys.stdin)
    template = os.environ.get("SKILL_WEB_SEARCH__URL", "")
    if "{query}" not in template:
        fail("no search service is configured; the operator has to set SKILL_WEB_SEARCH__URL, an address with {query} in it")
    url = template.replace("{query}", urllib.parse.quote(given["query"], safe=""))
    url = url.replace("{count}", str(given["count"]))
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        fail("SKILL_WEB_SEARCH__URL has to begin with https:// or http://")
    headers = {"Accept": "application/json", "User-Agent": "codeagent-web-search"}
    key = os.environ.get("SKILL_WEB_SEARCH__KEY", "")
    if key:
        name = os.environ.get("SKILL_WEB_SEARCH__KEY_HEADER", "Authorization")
        headers[name] = f"Bearer {key}" if name.lower() == "authorization" else key
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as response:
            body = response.read(LIMIT_BYTES + 1)
    except urllib.error.HTTPError as error:
        fail(f"the search service answered {error.code}")
    except (urllib.error.URLError, OSError) as error:
        fail(f"the search service can't be reached: {getattr(error, 'reason', error)}")
    if len(body) > LIMIT_BYTES:
        fail("the search service answered more than can be read")
    try:
        hits = hits_of(json.loads(body))
    except (UnicodeDecodeError, ValueError):
        hits = None
    if hits is None:
        fail("the search service answered something that holds no hits; see the skill's instructions for the operator")
    if not hits:
        print("no hits; try other words")
    for number, hit in enumerate(hits[: given["count"]], 1):
        print(f"{number}. {first(hit, 'title', 'name') or '(no title)'}")
        print(f"   {first(hit, 'url', 'link', 'href')}")
        excerpt = first(hit, "content", "snippet", "description")
        if excerpt:
            print(f"   {excerpt[:500]}")


main()
