# SPDX-License-Identifier: Apache-2.0
"""Writes docs/faults.md and conformance/lists/selftest_score.txt from a self-test.

usage: docs/faults.py SELFTEST.json      what `msabench selftest --json SELFTEST.json` left
       docs/faults.py --check            says whether both are those of the lists as they are now
"""

import hashlib
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
LISTS = ROOT / "conformance" / "lists"
PAGE = ROOT / "docs" / "faults.md"
SCORE = LISTS / "selftest_score.txt"

KINDS = {
    "IDX": "Block ids and index heads", "SEL": "Selection", "TAIL": "The end of a sequence", "CAUS": "The causal mask",
    "ROW": "Rows with nothing to see, and masks", "PAGE": "Pages and addresses", "RACE": "Order and state of launches",
    "GRAPH": "Plans that are replayed", "COMB": "Splits and partial results", "GQA": "Heads and sequences",
    "PREC": "Precision and scales", "ROPE": "Rotation", "NORM": "Norms", "KL": "The loss of the index branch", "BWD": "Gradients",
    "VIT": "Vision", "DENSE": "Posing as sparse", "ZERO": "No result at all", "MEM": "Memory", "LAUNCH": "Linked launches",
}


def entries(name):
    lines = (re.sub(r"#.*", "", line).split() for line in (LISTS / f"{name}.txt").read_text().splitlines())
    return [words for words in lines if words]


def lists_sha256():
    """As conformance/selftest_lists.cpp computes it."""
    text = "".join(" ".join(words) + " \n" for name in ("mutants", "variants", "core.selftest") for words in entries(name))
    return hashlib.sha256(text.encode()).hexdigest()


def short(name):
    return name.split(":", 1)[-1]


def case_of(trial):
    return trial["case"].rsplit("/", 1)[0]


def margin(mutant):
    for trial in mutant["trials"]:
        if trial["case"] != mutant.get("at"):
            continue
        for failed in trial["failed"]:
            if failed["id"] == mutant["by"] and failed["margin"] != 0:
                return "not finite" if failed["margin"] is None else f"{failed['margin']:.3g}x"
    return ""


def killers(mutant):
    """Checks that fail on any case that was tried, K4 for K4a and K4b, and the ends of processes."""
    found = set()
    for trial in mutant["trials"]:
        found |= {re.sub(r"(?<=\d)[a-z]$", "", failed["id"]) for failed in trial["failed"]}
        if trial["verdict"] in ("crash", "timeout"):
            found.add(trial["verdict"])
    return found


def kill_tables(mutants):
    text = ""
    for kind, title in KINDS.items():
        rows = [m for m in mutants if short(m["name"]).startswith(kind + "-")]
        if not rows:
            continue
        text += f"\n### {title}\n\n| id | fault | rejected by | margin | in |\n|---|---|---|---|---|\n"
        for m in rows:
            at = m.get("at", "").rsplit("/", 1)[0]
            text += f"| {short(m['name'])} | {m['what']} | {m.get('by', '**nothing**')} | {margin(m)} | `{at}` |\n"
    return text


def worth_table(mutants):
    checks = sorted({check for m in mutants for check in killers(m)})
    text = "| without | mutants that would live | which |\n|---|---|---|\n"
    for check in checks:
        alone = [short(m["name"]) for m in mutants if killers(m) == {check}]
        text += f"| {check} | {len(alone)} | {', '.join(alone)} |\n"
    return text


def use_table(variants):
    columns = ["K1", "K2", "K3", "K4a", "K4b", "K8", "K6u"]
    text = "| variant | what it does | " + " | ".join(columns) + " |\n|---|---|" + "---|" * len(columns) + "\n"
    for v in variants:
        use = {}
        for trial in v["trials"]:
            for check, value in trial["use"].items():
                column = "K8" if check.startswith("K8") else check
                use[column] = max(use.get(column, 0), value)
        text += f"| {short(v['name'])} | {v['what']} | " + " | ".join(f"{use[c]:.2f}" if c in use else "" for c in columns) + " |\n"
    return text


def page(record):
    mutants, variants = record["mutants"], record["variants"]
    return f"""<!-- SPDX-License-Identifier: Apache-2.0 -->
# Faults that the suite is proved to catch

Public kernels for sparse attention have had much the same faults again and again. For each kind that is listed here the suite
has *mutants*: `naive` with that one fault, which it has to reject, by a check of the stage that is wrong. It also has *variants*: right
kernels that compute in all the ways in which honest ones differ, which it has to accept. `msabench selftest` tries both
([conformance.md](conformance.md#does-the-suite-bite)).

This page is written by `docs/faults.py` from such a run: {record["score"]}.

What a fault is called here is what to type: `msabench repro CASE/s0 --impl mutants:ID` shows how it is reported. *Margin* is by how
much the limit was exceeded, where the check has one. A mutant that stands for a fault of devices (a race, a graph that is
replayed, a launch that reads too early) has the form on a CPU that its line says.

## Mutants
{kill_tables(mutants)}
## Benchmarks that mislead

BENCH-1 has no mutants. The tests of `perf` (tests/perf, tests/host) hold that outputs are judged after they were timed, so that a
kernel which is not done, or leaves its work out, has no number; that no input is constant, and that a set is used again only when twice the cache has been
touched; that the time of `msa` holds its selection; that a gain is over the fastest dense attention and names it; and that FLOPs
are those of visible pairs, as counting them one by one gives.

## What each check alone is worth

The mutants that no other check fails in any case that was run. `msabench selftest --without K3` shows it for one check.

{worth_table(mutants)}
## Variants, and how much of each limit they use

The largest value over limit in all cases; K6u is the share of what K1 allows beyond the rounding of the output, on rows with at
least 64 keys of about equal weight, where 0.5 is the most that an honest kernel is expected to use. Where few keys carry a row,
an fp32 output can come as near to its limit as its last rounding takes it.

{use_table(variants)}"""


def check():
    wrong = []
    text = PAGE.read_text()
    named = set(re.findall(r"^\| ([A-Z]+-\d+\.[a-z]) \|", text, re.MULTILINE))
    listed = {words[0] for words in entries("mutants")}
    if named != listed:
        wrong.append(f"docs/faults.md: mutants differ from the list: {', '.join(sorted(named ^ listed))}")
    for name in (words[0] for words in entries("variants")):
        if f"\n| {name} |" not in text:
            wrong.append(f"docs/faults.md: variant {name} is missing")
    if f"lists {lists_sha256()}\n" not in SCORE.read_text():
        wrong.append(f"{SCORE.relative_to(ROOT)}: is of other lists")
    for line in wrong:
        print(f"{line}; run msabench selftest --json FILE, then docs/faults.py FILE")
    return 1 if wrong else 0


def main(argument):
    if argument == "--check":
        return check()
    record = json.loads(pathlib.Path(argument).read_text())
    if record["schema"] != "msabench.selftest/1" or not record["valid"] or record["partial"]:
        print(f"{argument}: is no valid self-test; run msabench selftest without --without, to its end")
        return 1
    if record["lists"] != lists_sha256():
        print(f"{argument}: was obtained with other lists; run msabench selftest again")
        return 1
    PAGE.write_text(page(record))
    SCORE.write_text("# SPDX-License-Identifier: Apache-2.0\n# What the self-test came to, and the hash of the lists that it ran; docs/faults.py writes it.\n"
                     f"lists {record['lists']}\nscore {record['score']}\n")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
