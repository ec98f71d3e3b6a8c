"""Counts the words of the notes in a folder. Arguments come as JSON on standard input, the result goes out as JSON."""
import json
import pathlib
import sys

folder = pathlib.Path(json.load(sys.stdin)["folder"])
notes = sorted(folder.glob("*.md"))
print(json.dumps([{"path": str(note), "words": len(note.read_text(encoding="utf-8").split())} for note in notes]))
