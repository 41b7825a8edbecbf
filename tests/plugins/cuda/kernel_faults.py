#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants one fault each into a source of the plugins `cuda` and `cuda_sm90`, for the device's conformance run.

usage: kernel_faults.py FAULT KERNELS TARGET   writes TARGET, that source in the folder KERNELS with the fault
       kernel_faults.py --list                 a line for each: its name, its source, and the cases that have to see it
       kernel_faults.py --little-workspace     definitions of a plugin whose small cases go through workspace in several steps, a line for each
       kernel_faults.py --check KERNELS        whether every fault still has its place

KERNELS is the tree's kernels/. The plugin with a fault is TARGET in place of its source, linked with the objects of all others. "HEADER in
SOURCE" is a fault in a header as that source sees it: TARGET then has the text of the headers of the source's own folder in it.
"""
import pathlib
import re
import sys

import hopper_faults
import portable_faults

FAULTS = {**portable_faults.FAULTS, **hopper_faults.FAULTS}


def plugin_of(name):
    """That the kernel is of; its folder has the same name."""
    return FAULTS[name][0].split("/")[0]


def definitions_of(name):
    """What the objects of the plugin with this fault are compiled with, where they see it."""
    return hopper_faults.LITTLE_WORKSPACE if name in hopper_faults.NEED_LITTLE_WORKSPACE else ()


def read(source, kernels):
    """Text of a source; of HEADER in SOURCE, that of the source with its headers from the folder in place, each once."""
    *header, source = source.split(" in ")
    folder, include, seen = pathlib.Path(kernels), re.compile(r'#include "kernels/(%s/[^"]+)"\n' % source.split("/")[0]), set()
    if not (folder / source).exists():
        return ""

    def put(match):
        name = match.group(1)
        if name in seen:
            return ""
        seen.add(name)
        return include.sub(put, (folder / name).read_text(encoding="utf-8").replace("#pragma once\n", ""))

    text = (folder / source).read_text(encoding="utf-8")
    return include.sub(put, text) if header else text


def places(name, kernels):
    source, old, _, _ = FAULTS[name]
    return read(source, kernels).count(old)


def main(arguments):
    if arguments == ["--list"]:
        for name, (source, _, _, cases) in FAULTS.items():
            print(name, source.split(" in ")[-1], cases)
        return 0
    if arguments == ["--little-workspace"]:
        print("\n".join(hopper_faults.LITTLE_WORKSPACE))
        return 0
    if len(arguments) == 2 and arguments[0] == "--check":
        lost = [name for name in FAULTS if places(name, arguments[1]) != 1]
        for name in lost:
            print(f"kernel_faults.py: {name}: its place is {places(name, arguments[1])} times in {FAULTS[name][0]}; mend the fault", file=sys.stderr)
        return 1 if lost else 0
    if len(arguments) != 3 or arguments[0] not in FAULTS:
        print(__doc__, file=sys.stderr)
        return 64
    name, kernels, target = arguments
    if places(name, kernels) != 1:
        print(f"kernel_faults.py: {name}: its place is not exactly once in {FAULTS[name][0]}; mend the fault", file=sys.stderr)
        return 1
    source, old, new, _ = FAULTS[name]
    pathlib.Path(target).write_text(read(source, kernels).replace(old, new), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
