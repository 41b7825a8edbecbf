# SPDX-License-Identifier: Apache-2.0
"""Nothing in the tree belongs to one machine, one network or one moment of its making."""

import pathlib
import re

import tree

# Written in pieces, so that this file is no finding of itself.
FORBIDDEN = {
    "a path of one machine": r"(?<![\w.}])/(?:wo" r"rk|ho" r"me|ro" r"ot|Us" r"ers|mn" r"t|workspa" r"ce)/\w|/tmp/(?:bu" r"ild|c" r"i-|br" r"ief)",
    "a host of a package registry": r"(?:pypi|pythonhosted|debian|ubuntu|npmjs|crates|anaconda|docker|ghcr|quay|golang|maven|rubygems|jfrog)"
                                    r"\.(?:o" r"rg|i" r"o|c" r"om|n" r"et)\b",
    "a file outside the tree": r"(?:\.\./)+sha" r"red/|\bsha" r"red/(?:spec|golden|vendor|hooks)\b",
    "an unfinished place": r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b",
    "a number of a tracker": r"\bissue" r" #?\d+\b",
}
PATTERNS = {what: re.compile(pattern) for what, pattern in FORBIDDEN.items()}
DATA = {".safetensors", ".golden", ".bin", ".png", ".npy"}


def findings_in(name, text):
    return [f"{name}:{number}: {what}: {match.group()}"
            for number, line in enumerate(text.splitlines(), 1)
            for what, pattern in PATTERNS.items() for match in pattern.finditer(line)]


def selftest():
    """Each pattern matches its example and leaves the ordinary text beside it alone."""
    for what, bad, good in [("a path of one machine", "cd /ho" "me/someone/src", "build/ho" "me/x and ${prefix}/wo" "rk/x"),
                            ("a host of a package registry", "https://py" "pi.org/simple", "the Debian package"),
                            ("a file outside the tree", "see ../sha" "red/spec", "shared pages"),
                            ("an unfinished place", "// TO" "DO: later", "todo list of a case"),
                            ("a number of a tracker", "closes issue" " 12", "issue a load")]:
        if not PATTERNS[what].search(bad) or findings_in("x", good):
            raise AssertionError(f"the pattern for {what} does not tell {bad!r} from {good!r}")


def main():
    selftest()
    findings, looked_at = [], 0
    for name in tree.files():
        if name.startswith(tree.FOREIGN) or pathlib.PurePath(name).suffix in DATA:
            continue
        text = tree.text(name)
        if text is not None:
            looked_at += 1
            findings += findings_in(name, text)
    if looked_at == 0:
        findings.append("no file found: nothing was checked")
    tree.report(findings, f"traces, {looked_at} files")


if __name__ == "__main__":
    main()
