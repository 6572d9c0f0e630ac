#!/usr/bin/env python3
"""Writes the marked code blocks of a document into files: extract_snippets.py DOCUMENT DIRECTORY

A block is marked by its file name, as in ```c file=story.c
"""
import pathlib
import re
import sys

BLOCK = re.compile(r"^```\w+ file=([\w.]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def extract(document, directory):
    """Names of the files written."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    blocks = BLOCK.findall(pathlib.Path(document).read_text(encoding="utf-8"))
    for name, code in blocks:
        (directory / name).write_text(code, encoding="utf-8")
    return [name for name, _ in blocks]


if __name__ == "__main__":
    if not extract(sys.argv[1], sys.argv[2]):
        sys.exit(f"{sys.argv[1]}: no marked code block")
