#!/usr/bin/env python3
"""Reads the #include lines of the four rooms and fails on one that the architecture forbids.

The linker cannot see these: a header-only use of the wrong room, or of the wrong library, links well.
Usage: check_includes.py [ROOT]
"""

import pathlib
import re
import sys

# A room and the rooms that it may use.
ARROWS = {
    "kernels": {"kernels"},
    "container": {"kernels", "container"},
    "engine": {"kernels", "container", "engine"},
    "tools": {"kernels", "container", "engine", "tools"},
}

# Each tier: the only headers that its files may include. An inline function or a template from any other header
# would be compiled for that tier, and the linker may hand the copy to code that runs on every CPU.
TIER_HEADERS = {
    "scalar": {"cstddef", "cstdint"},
    "portable": {"cstddef", "cstdint", "utility"},  # compiled for each tier; <utility> for integer sequences, types only
    "avx2": {"cstddef", "cstdint", "immintrin.h"},
    "avxvnni": {"cstddef", "cstdint", "immintrin.h"},
    "avx512": {"cstddef", "cstdint", "immintrin.h"},
    "neon": {"cstddef", "cstdint", "arm_neon.h"},
    "i8mm": {"cstddef", "cstdint", "arm_neon.h"},
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
INTRINSICS = re.compile(r"^(\w*intrin|arm_\w+)\.h$")
FILE_ACCESS = re.compile(r"^(fcntl\.h|sys/mman\.h|liburing\.h|linux/io_uring\.h|fstream)$")
SOURCE_ONLY_LIBRARY = re.compile(r"^(nlohmann|fmt)/")
NOT_FOR_KERNELS = re.compile(
    r"^(atomic|barrier|condition_variable|cstdio|exception|filesystem|fstream|future|iostream|mutex|new"
    r"|stdexcept|stdio\.h|thread|unistd\.h|pthread\.h|omp\.h|xxhash\.h|tl/.*|nlohmann/.*|fmt/.*)$")


def faults_of_include(file, quoted, header, root):
    """What is wrong with one include; `file` is relative to the root."""
    room = file.parts[0]
    tier = file.parts[1] if room == "kernels" and len(file.parts) > 2 else None
    first = header.split("/")[0]
    if first in ARROWS or first == "tests":
        if not quoted:
            yield "a header of ours is included with quotes"
        if first not in ARROWS[room]:
            yield f"{room}/ may not use {first}/"
        if not (root / header).is_file():
            yield "there is no such file"
    elif quoted:
        yield "an include of ours is written from the root of the repository"
    if tier is not None:
        allowed = TIER_HEADERS.get(tier)
        if allowed is None:
            yield f"the tier {tier} is unknown; add it to TIER_HEADERS"
        elif first != "kernels" and header not in allowed:
            yield f"a file of the tier {tier} may only include kernels/ and {', '.join(sorted(allowed))}"
    elif INTRINSICS.match(header):
        yield "intrinsics belong into a tier of kernels/"
    if room == "kernels" and NOT_FOR_KERNELS.match(header):
        yield "kernels/ does arithmetic only: no I/O, threads or exceptions"
    if room != "container" and FILE_ACCESS.match(header):
        yield "files are opened and mapped in container/ only"


def read_includes(root):
    """Each source file, relative to the root, and its includes as (line number, is quoted, header)."""
    includes = {}
    for room in ARROWS:
        for path in sorted((root / room).rglob("*")):
            if path.suffix in (".h", ".cc"):
                lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
                found = [(number, INCLUDE.match(line)) for number, line in lines]
                includes[path.relative_to(root)] = [(n, m[1] == '"', m[2]) for n, m in found if m]
    return includes


def check(root):
    """All faults under `root`, as lines to print, and the number of files read."""
    includes = read_includes(root)
    # Headers that need a library which no other room shall see: for the .cc files of their own room only.
    private = {file.as_posix() for file, lines in includes.items() if file.suffix == ".h"
               and any(SOURCE_ONLY_LIBRARY.match(header) for _, _, header in lines)}
    faults = []
    for file, lines in includes.items():
        for number, quoted, header in lines:
            found = list(faults_of_include(file, quoted, header, root))
            if header in private and (file.suffix == ".h" or file.parts[0] != header.split("/")[0]):
                found.append("it includes nlohmann/ or fmt/, so only .cc files of its own room may use it")
            faults += [f"{file}:{number}: {header}: {fault}" for fault in found]
    return faults, len(includes)


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent
    faults, file_count = check(root.resolve())
    if file_count == 0:
        faults.append(f"{root}: no source file found")
    for fault in faults:
        print(fault)
    if not faults:
        print(f"the includes of {file_count} files follow the arrows")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
