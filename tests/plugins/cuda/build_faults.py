#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the plugins `cuda` and `cuda_sm90` once with each of their faults in kernel_faults.py, for ci/gpu.

usage: build_faults.py BUILD ARCHIVE [FAULT...]

BUILD is a build folder in which both are up to date: each fault is compiled and linked by the commands that made its plugin. A fault that needs
little workspace to be seen has every object that sees the size of it compiled once more.
ARCHIVE becomes a .tar.xz of NAME.so for each fault, and of cases.txt, `NAME CASES` a line. They are alike but for an object or a few, so
together they are hardly larger than one.
"""
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tarfile
import tempfile

import kernel_faults

ROOT = pathlib.Path(__file__).resolve().parents[3]
KERNELS = ROOT / "kernels"


def library(plugin):
    return f"lib/msabench/{plugin}.so"


def commands_of(build, plugin):
    """How each source is compiled, by its path in kernels/, and how the plugin is linked: lists of words."""
    told = subprocess.run(["ninja", "-C", build, "-t", "commands", library(plugin)], text=True, capture_output=True, check=True).stdout
    # Of ninja's `: && COMMAND && :`.
    link = [word for word in shlex.split(told.splitlines()[-1]) if word not in (":", "&&")]
    compiles = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path, words = pathlib.Path(entry["file"]), shlex.split(entry["command"])
        # A source may be compiled for other plugins as well.
        if path.parent == KERNELS / plugin and words[words.index("-o") + 1] in link:
            compiles[f"{plugin}/{path.name}"] = words
    return compiles, link


def replaced(words, changes):
    missing = [old for old in changes if old not in words]
    if missing:
        raise SystemExit(f"build_faults.py: {missing[0]}: is not in the command `{shlex.join(words)}`")
    return [changes.get(w, w) for w in words]


def run(command, name, build):
    done = subprocess.run(command, cwd=build, text=True, capture_output=True)
    if done.returncode != 0:
        raise SystemExit(f"build_faults.py: {name}: `{shlex.join(command)}` failed\n{done.stdout}{done.stderr}")


def sees(source, definitions):
    """Whether a source, or a header of its folder that it includes, has a name that is defined."""
    text = kernel_faults.read(f"headers in {source}", KERNELS)
    return any(definition.split("=")[0] in text for definition in definitions)


def build_one(name, build, commands, folder):
    compiles, link = commands[kernel_faults.plugin_of(name)]
    library_made = library(kernel_faults.plugin_of(name))
    source, definitions = kernel_faults.FAULTS[name][0].split(" in ")[-1], kernel_faults.definitions_of(name)
    planted, plugin = folder / f"{name}.cu", folder / f"{name}.so"
    if kernel_faults.main([name, str(KERNELS), str(planted)]) != 0:
        raise SystemExit(1)
    if source not in compiles:
        raise SystemExit(f"build_faults.py: {source}: no object of it is linked into {library_made} in {build}")
    changes = {library_made: str(plugin)}
    for other, compile_it in compiles.items():
        if other != source and not sees(other, definitions):
            continue
        usual = compile_it[compile_it.index("-o") + 1]
        built = folder / f"{name}.{pathlib.Path(other).stem}.o"
        changes[usual] = str(built)
        taken = {usual: str(built)}
        if other == source:
            taken[str(KERNELS / source)] = str(planted)
        run([*replaced(compile_it, taken), *(f"-D{definition}" for definition in definitions)], name, build)
    run(replaced(link, changes), name, build)
    run(["strip", "--strip-unneeded", str(plugin)], name, build)
    return plugin


def main(arguments):
    if len(arguments) < 2 or any(name not in kernel_faults.FAULTS for name in arguments[2:]):
        print(__doc__, file=sys.stderr)
        return 64
    build, archive, names = pathlib.Path(arguments[0]).resolve(), pathlib.Path(arguments[1]), arguments[2:] or list(kernel_faults.FAULTS)
    commands = {plugin: commands_of(build, plugin) for plugin in {kernel_faults.plugin_of(name) for name in names}}
    with tempfile.TemporaryDirectory() as temporary, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        folder = pathlib.Path(temporary)
        plugins = list(pool.map(lambda name: build_one(name, build, commands, folder), names))
        cases = folder / "cases.txt"
        cases.write_text("".join(f"{name} {kernel_faults.FAULTS[name][3]}\n" for name in names))
        unfinished = archive.with_name(archive.name + ".part")
        with tarfile.open(unfinished, "w:xz", preset=9) as out:
            for path in (cases, *plugins):
                entry = out.gettarinfo(path, path.name)
                entry.mtime = 0
                with path.open("rb") as file:
                    out.addfile(entry, file)
        unfinished.replace(archive)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
