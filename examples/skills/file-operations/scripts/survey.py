"""Surveys a folder of the workspace. Arguments come as JSON on standard input."""
import datetime
import hashlib
import json
import os
import sys

SKIPPED = {".git", "node_modules", "__pycache__", ".venv"}
MOST_FILES = 100_000


def inside(path):
    root = os.path.realpath(".")
    real = os.path.realpath(path)
    if real != root and not real.startswith(root + os.sep):
        sys.exit(f"{path} is outside the workspace")
    if not os.path.isdir(real):
        sys.exit(f"{path} is no folder")
    return real


def files_in(folder):
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        for name in sorted(names):
            path = os.path.join(base, name)
            try:
                stats = os.lstat(path)
            except OSError:
                continue
            if os.path.isfile(path) and not os.path.islink(path):
                yield os.path.relpath(path), stats


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else hashlib.sha256(file.read()).hexdigest()


def main():
    given = json.load(sys.stdin)
    top = given["top"]
    found = []
    for entry in files_in(inside(given["path"])):
        found.append(entry)
        if len(found) == MOST_FILES:
            print(f"stopped after {MOST_FILES} files")
            break
    print(f"{len(found)} files, {sum(stats.st_size for _, stats in found)} bytes; {', '.join(sorted(SKIPPED))} left out")
    print("\nlargest:")
    for path, stats in sorted(found, key=lambda each: (-each[1].st_size, each[0]))[:top]:
        print(f"{stats.st_size:>12}  {path}")
    print("\nnewest:")
    for path, stats in sorted(found, key=lambda each: (-each[1].st_mtime, each[0]))[:top]:
        when = datetime.datetime.fromtimestamp(stats.st_mtime, datetime.timezone.utc)
        print(f"{when:%Y-%m-%d %H:%M}  {path}")
    by_size = {}
    for path, stats in found:
        if stats.st_size > 0:
            by_size.setdefault(stats.st_size, []).append(path)
    same = {}
    for size, paths in by_size.items():
        for path in paths if len(paths) > 1 else []:
            try:
                same.setdefault((size, digest(path)), []).append(path)
            except OSError:
                continue
    groups = sorted((key[0], sorted(paths)) for key, paths in same.items() if len(paths) > 1)
    print("\nsame content:" if groups else "\nno two files have the same content")
    for size, paths in groups[::-1][:top]:
        print(f"{size:>12}  {'  '.join(paths)}")


main()
