# SPDX-License-Identifier: Apache-2.0
"""The folder table of docs/architecture.md against every #include line: which folder may see what.

usage: arrows.py [ROOT]. Only words in backticks count in the columns `folder` and `may include`; the rest is for people.
A word is a folder (`core`, `host/worker`), a file (`include/msabench/plugin.h`), a library (the keys of LIBRARIES) or `all`.
A file belongs to the longest folder of the table that holds it; its own folder, without other rows below it, is always allowed.
"""

import pathlib
import posixpath
import re
import sys

import tree

TABLE = "docs/architecture.md"
INCLUDE = re.compile(r"^[ \t]*#[ \t]*(?:include|include_next|import)\b[ \t]*(.*)$", re.MULTILINE)
BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)

C_STANDARD = "assert complex ctype errno fenv float inttypes limits locale math setjmp signal stdalign stdarg stdatomic stdbool " \
             "stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype".split()
POSIX = "aio arpa cpio dirent dlfcn elf execinfo fcntl features fnmatch ftw getopt glob gnu grp ifaddrs langinfo libgen link linux malloc net netdb " \
        "netinet poll pthread pwd regex sched semaphore spawn strings sys syslog termios ucontext unistd utime wordexp".split()
# A header is of the first library that matches; one that matches none is unknown, and forbidden until it is named here.
LIBRARIES = {
    "std": re.compile(r"[a-z_]+|(?:%s)\.h" % "|".join(C_STANDARD)),
    "posix": re.compile(r"(?:%s)(?:/.+)?\.h" % "|".join(POSIX)),
    "fmt": re.compile(r"fmt/.+"),
    "json": re.compile(r"nlohmann/.+"),
    "libcrypto": re.compile(r"openssl/.+"),
    "cli11": re.compile(r"CLI/.+"),
    "openmp": re.compile(r"omp\.h"),
    "gtest": re.compile(r"g(?:test|mock)/.+"),
    "benchmark": re.compile(r"benchmark/.+"),
    "highway": re.compile(r"hwy/.+"),
    "toml": re.compile(r"toml\+\+/.+"),
    "cuda": re.compile(r"(?:cuda|cublas|cudnn|nvml|nvrtc|nv|cub|thrust|cutlass|cute|mma|cooperative_groups|driver_types|math_constants|vector_types|"
                       r"device_launch_parameters|crt)[A-Za-z0-9_]*(?:/.+|\.h|\.hpp|\.cuh)?"),
}


def library(header):
    # <cuda/barrier> has no suffix but a folder, <cuda> alone would read as a word of the standard library.
    if re.match(r"(?:cuda|nv)(?:/|$)", header):
        return "cuda"
    for name, pattern in LIBRARIES.items():
        if pattern.fullmatch(header):
            return name
    return None


def read_table(text):
    """{folder: set of words it may include} of the first table whose header names both columns."""
    rows, columns = {}, None
    for line in text.splitlines():
        if not line.startswith("|"):
            if rows:
                break
            columns = None
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if columns is None:
            if "folder" in cells and "may include" in cells:
                columns = cells.index("folder"), cells.index("may include")
            continue
        if set(line) <= set("|-: "):
            continue
        words = set(re.findall(r"`([^`]+)`", cells[columns[1]]))
        for folder in re.findall(r"`([^`]+)`", cells[columns[0]]):
            folder = folder.removesuffix("/")
            if folder in rows:
                raise ValueError(f"{TABLE}: folder {folder} has two rows")
            rows[folder] = words
    if not rows:
        raise ValueError(f"{TABLE}: no table with the columns `folder` and `may include`")
    for folder, words in rows.items():
        for word in words:
            known = word == "all" or word in LIBRARIES or row_of(word.removesuffix("/") + "/x", rows)[0] or "." in posixpath.basename(word)
            if not known:
                raise ValueError(f"{TABLE}: folder {folder} may include {word}, which is neither a folder of the table nor a library")
    return {folder: {word.removesuffix("/") for word in words} for folder, words in rows.items()}


def row_of(path, rows):
    """The longest folder of the table that holds path. `kernels/*` gives each of its sub-folders a row of its own."""
    best, own = None, None
    for folder in rows:
        parent = folder.removesuffix("/*")
        if path.startswith(parent + "/") and (best is None or len(parent) >= len(own)):
            best, own = folder, parent
    if best is not None and best.endswith("/*"):
        rest = path[len(own) + 1:].split("/")
        own = f"{own}/{rest[0]}" if len(rest) > 1 else own
    return best, own


def resolve(root, including, header, quoted):
    """Path in the tree of a header, or None for one from outside."""
    places = [posixpath.normpath(posixpath.join(posixpath.dirname(including), header))] if quoted else []
    for place in places + [posixpath.normpath(header), "include/" + header]:
        if not place.startswith("..") and (root / place).is_file():
            return place
    return None


def check(root):
    """Findings as lines of text, and the number of include lines looked at."""
    root = pathlib.Path(root)
    rows = read_table((root / TABLE).read_text(encoding="utf-8"))
    tops = {folder.split("/")[0] for folder in rows}
    findings, looked_at = [], 0
    for path in tree.source_files(root):
        row, own = row_of(path, rows)
        if row is None:
            findings.append(f"{path}: its folder has no row in {TABLE}; give it one")
            continue
        allowed = rows[row]
        text = BLOCK_COMMENT.sub(lambda comment: "\n" * comment.group().count("\n"), tree.text(path, root) or "")
        for match in INCLUDE.finditer(text):
            looked_at += 1
            where = f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
            named = re.match(r'"([^"]+)"|<([^>]+)>', match.group(1))
            if "all" in allowed:
                continue
            if not named:
                findings.append(f"{where}: #include {match.group(1).strip()}: not a literal name, so the arrows can't be checked")
                continue
            header = named.group(1) or named.group(2)
            target = resolve(root, path, header, named.group(1) is not None)
            # A header that the build generates is known by its folder alone.
            if target is None and "/" in header and header.split("/")[0] in tops:
                target = posixpath.normpath(header)
            if target is None:
                lib = library(header)
                if lib is None:
                    findings.append(f"{where}: {header}: neither in the tree nor of a known library (tests/tree/arrows.py)")
                elif lib not in allowed:
                    findings.append(f"{where}: {header}: {row} may not include {lib}")
                continue
            target_row, target_own = row_of(target, rows)
            if target_own == own or target in allowed or target_row in allowed or target_own in allowed:
                continue
            findings.append(f"{where}: {header}: {row} may not include {target_own or target}")
    return findings, looked_at


if __name__ == "__main__":
    found, count = check(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else tree.ROOT)
    if count == 0:
        found.append("no include line found: nothing was checked")
    tree.report(found, f"arrows, {count} include lines")
