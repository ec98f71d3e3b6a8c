"""Prints the facts of a repository. Arguments come as JSON on standard input."""
import collections
import json
import os
import re
import subprocess
import sys

LANGUAGES = {
    ".c": "C", ".h": "C", ".cc": "C++", ".cpp": "C++", ".hpp": "C++", ".cs": "C#", ".css": "CSS", ".ex": "Elixir",
    ".go": "Go", ".hs": "Haskell", ".html": "HTML", ".java": "Java", ".js": "JavaScript", ".mjs": "JavaScript",
    ".cjs": "JavaScript", ".jsx": "JavaScript", ".json": "JSON", ".kt": "Kotlin", ".lua": "Lua", ".md": "Markdown",
    ".php": "PHP", ".proto": "Protobuf", ".py": "Python", ".rb": "Ruby", ".rs": "Rust", ".scala": "Scala",
    ".sh": "Shell", ".bash": "Shell", ".sql": "SQL", ".swift": "Swift", ".toml": "TOML", ".ts": "TypeScript",
    ".tsx": "TypeScript", ".vue": "Vue", ".xml": "XML", ".yaml": "YAML", ".yml": "YAML", ".zig": "Zig",
}
SKIPPED = {".git", "node_modules", "__pycache__", ".venv", "venv", "target", "dist", "build", "vendor", ".tox"}
ENTRY = re.compile(r"^(main|index|app|server|cli|__main__|manage|lib|mod)\.(c|cc|cpp|go|java|js|mjs|kt|py|rb|rs|ts|tsx|swift)$")
MANIFESTS = ["README.md", "README.rst", "README", "package.json", "pyproject.toml", "setup.py", "requirements.txt",
             "Cargo.toml", "go.mod", "pom.xml", "build.gradle", "Gemfile", "Makefile", "Dockerfile", "docker-compose.yml"]
MOST_FILES = 50_000
LARGEST_BYTES = 2 * 1024 * 1024


def inside(path):
    root = os.path.realpath(".")
    real = os.path.realpath(path)
    if real != root and not real.startswith(root + os.sep):
        sys.exit(f"{path} is outside the workspace")
    if not os.path.isdir(real):
        sys.exit(f"{path} is no folder")
    return real


def read(path, limit=LARGEST_BYTES):
    try:
        with open(path, "rb") as file:
            return file.read(limit)
    except OSError:
        return b""


def commands(name, path):
    text = read(path).decode("utf-8", "replace")
    if name == "package.json":
        try:
            scripts = json.loads(text).get("scripts", {})
            return [f"npm run {key}: {value}" for key, value in scripts.items()] if isinstance(scripts, dict) else []
        except (ValueError, AttributeError):
            return []
    if name == "Makefile":
        return [f"make {target}" for target in re.findall(r"^([A-Za-z0-9_.-]+):(?!=)", text, re.M) if not target.startswith(".")]
    return []


def declared():
    """Files that package.json names as its beginning."""
    try:
        manifest = json.loads(read("package.json"))
        named = manifest.get("bin", {})
        named = [named] if isinstance(named, str) else list(named.values()) if isinstance(named, dict) else []
        named.append(manifest.get("main"))
        return [os.path.normpath(name) for name in named if isinstance(name, str) and os.path.isfile(name)]
    except (ValueError, AttributeError):
        return []


def main():
    given = json.load(sys.stdin)
    root = inside(given["path"])
    os.chdir(root)
    lines, files, sizes = collections.Counter(), collections.Counter(), collections.Counter()
    entries, seen, total = [], 0, 0
    for base, folders, names in os.walk("."):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        for name in sorted(names):
            path = os.path.relpath(os.path.join(base, name))
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            seen += 1
            size = os.path.getsize(path)
            total += size
            sizes[path.split(os.sep)[0] if os.sep in path else "."] += size
            if ENTRY.match(name) and path.count(os.sep) <= 3:
                entries.append(path)
            language = LANGUAGES.get(os.path.splitext(name)[1].lower())
            if language and size <= LARGEST_BYTES:
                files[language] += 1
                lines[language] += read(path).count(b"\n")
            if seen >= MOST_FILES:
                break
        if seen >= MOST_FILES:
            print(f"stopped after {MOST_FILES} files")
            break
    print(f"{seen} files, {total} bytes; {', '.join(sorted(SKIPPED))} left out")
    print("\nlanguages (lines, files):")
    for language, count in lines.most_common(12):
        print(f"{count:>9} {files[language]:>6}  {language}")
    print("\nlargest folders (bytes):")
    for folder, size in sizes.most_common(8):
        print(f"{size:>12}  {folder}")
    entries.sort(key=lambda path: (path.count(os.sep), path))
    print("\nentry points:", ", ".join(list(dict.fromkeys(declared() + entries))[:20]) or "none by name")
    print("\nmanifests:")
    for name in MANIFESTS:
        if os.path.isfile(name):
            print(f"  {name}")
            for command in commands(name, name)[:20]:
                print(f"    {command[:200]}")
    if given["commits"] > 0:
        print("\nrecent commits:")
        log = ["git", "-c", "safe.directory=*", "-c", "core.fsmonitor=false", "--no-pager", "log", f"-{given['commits']}",
               "--no-show-signature", "--date=short", "--format=%h %ad %an: %s"]
        try:
            done = subprocess.run(log, capture_output=True, text=True, errors="replace", timeout=20)
            print(done.stdout.strip() if done.returncode == 0 and done.stdout.strip() else "none: this is no repository of git, or an empty one")
        except (OSError, subprocess.TimeoutExpired):
            print("unknown: git does not run here")


main()
