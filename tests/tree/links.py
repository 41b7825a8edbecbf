# SPDX-License-Identifier: Apache-2.0
"""Links between the documents lead somewhere: every relative one to a file of the tree, and every #part of it to a heading."""

import posixpath
import re

import tree

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(text):
    """The names that a heading can be linked by, as forges derive them."""
    headings = re.findall(r"^#+ +(.+?) *$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def main():
    findings, looked_at = [], 0
    documents = [name for name in tree.files() if name.endswith(".md") and not name.startswith(tree.FOREIGN)]
    there = set(tree.files())
    folders = {posixpath.dirname(name) for name in there}
    for name in documents:
        for target in LINK.findall(FENCE.sub("", tree.text(name))):
            if re.match(r"[a-z]+:", target):
                continue
            looked_at += 1
            path, _, part = target.partition("#")
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            if path not in there and path not in folders:
                findings.append(f"{name}: {target}: no such file")
            elif part and part not in anchors(tree.text(path)):
                findings.append(f"{name}: {target}: no such heading")
    if looked_at == 0:
        findings.append("no link found: nothing was checked")
    tree.report(findings, f"links, {looked_at} in {len(documents)} documents")


if __name__ == "__main__":
    main()
