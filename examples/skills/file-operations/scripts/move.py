"""Moves or copies files of the workspace into one of its folders. Arguments come as JSON on standard input."""
import glob
import json
import os
import shutil
import sys

MOST_FILES = 10_000


def inside(path):
    root = os.path.realpath(".")
    real = os.path.realpath(path)
    if real != root and not real.startswith(root + os.sep):
        sys.exit(f"{path} is outside the workspace")
    return real


def main():
    given = json.load(sys.stdin)
    target = inside(given["into"])
    if os.path.exists(target) and not os.path.isdir(target):
        sys.exit(f"{given['into']} is a file")
    if os.path.isabs(given["pattern"]):
        sys.exit("the pattern has to begin in the workspace")
    matches = sorted(path for path in glob.glob(given["pattern"], recursive=True) if os.path.isfile(path))
    if not matches:
        sys.exit("no file matches the pattern")
    if len(matches) > MOST_FILES:
        sys.exit(f"{len(matches)} files match; {MOST_FILES} is the most at once")
    plan, taken, obstacles = [], set(), []
    for path in matches:
        inside(path)
        destination = os.path.join(target, os.path.basename(path))
        if os.path.lexists(destination) or destination in taken:
            obstacles.append(f"{os.path.relpath(destination)} would be overwritten by {path}")
        taken.add(destination)
        plan.append((path, destination))
    if obstacles:
        sys.exit("nothing was done:\n" + "\n".join(obstacles[:100]))
    if given["apply"]:
        os.makedirs(target, exist_ok=True)
    for path, destination in plan:
        if given["apply"]:
            shutil.copy2(path, destination) if given["copy"] else os.rename(path, destination)
        print(f"{path} -> {os.path.relpath(destination)}")
    word = "copied" if given["copy"] else "moved"
    print(f"{len(plan)} files {word}" if given["apply"] else f"{len(plan)} files would be {word}; call again with apply to do it")


main()
