#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of README.md and docs/gpu-speed.md from the speed reports of one machine.

usage: docs/gpu_speed.py            writes them from reports/published/h200/PLUGIN/perf-RUN.json.gz
       docs/gpu_speed.py --check    says whether they are as these reports have them

A table stands between `<!-- table NAME -->` and `<!-- end of NAME -->`. A figure that no report has is a dash; one whose outputs nobody
judged is marked with `?`, one that did not settle with `~`. Times are medians, of a launch alone and, behind a slash, back to back.
"""
import gzip
import json
import pathlib
import re
import sys
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
PUBLISHED = ROOT / "perf" / "published.json"
REPORTS = ROOT / "reports" / "published" / "h200"
PAGES = (ROOT / "README.md", ROOT / "docs" / "gpu-speed.md")


def size(n):
    return f"{n // 2**20}M" if n % 2**20 == 0 else f"{n // 2**10}K" if n % 2**10 == 0 else str(n)


def digits(x):
    """Three digits that count."""
    return f"{x:.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"


def time(us):
    return f"{digits(us)} us" if us < 1000 else f"{digits(us / 1000)} ms" if us < 1e6 else f"{digits(us / 1e6)} s"


class Item:
    """One measured item of a report."""

    def __init__(self, point, item, ceilings):
        self.state, self.figures = item["state"], item["figures"] or {}
        self.alone, self.back = item["time_us"]["median"], item["back_to_back_us"]
        self.settled, self.point, self.ceilings, self.work = item["converged"], point, ceilings, item["work"]

    def mark(self):
        return ("?" if self.state == "unverified" else "") + ("" if self.settled else "~")

    def times(self):
        return time(self.alone) + (f" / {time(self.back)}" if self.back else "") + self.mark()

    def gain(self):
        """Over the best dense attention of the report: alone / back to back."""
        return pair(self.figures.get("gain_over_dense"), self.figures.get("back_to_back_gain"), lambda x: f"{digits(x)}x")

    def share(self):
        """Of the time that the limits measured in the same run leave as the least."""
        return f"{self.figures['efficiency']:.0%} of {self.figures['bound']}" if self.figures.get("efficiency") else "-"

    def rate(self):
        return f"{self.figures['flops_per_s'] / 1e12:.0f} TFLOP/s{self.mark()}" if self.figures.get("flops_per_s") else "-"


def read_report(path):
    try:
        report = json.loads(gzip.decompress(path.read_bytes()))
        if report["schema"] != "msabench.perf/1":
            raise KeyError(f"its schema is {report['schema']}")
        for key in ("implementations", "points"):
            report[key]  # noqa: B018
        return report
    except (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error) as why:
        raise SystemExit(f"gpu_speed.py: {path.relative_to(ROOT)}: is no packed report of msabench perf ({why}); make it anew or take it out") from why


def load(folder):
    """{(run, plugin): {(phase, context, query tokens, batch, selection, operator, implementation): Item}}"""
    runs = {}
    for path in sorted(folder.glob("*/perf-*.json.gz")):
        plugin, run = path.parent.name, path.name.removeprefix("perf-").removesuffix(".json.gz")
        report = read_report(path)
        names = [i["name"] for i in report["implementations"]]
        items = runs.setdefault((run, plugin), {})
        for point in report["points"]:
            for item in point["items"]:
                if item["state"] not in ("measured", "unverified"):
                    continue
                key = (point["phase"], point["context"], point["query_tokens"], point["batch"], point["selection"], item["operator"],
                       names[item["implementation"]])
                items[key] = Item(point, item, point["ceilings"])
    return runs


def load_wholes(folder):
    """{(run, plugin): [whole of msa of the plugin]}"""
    wholes = {}
    for path in sorted(folder.glob("*/perf-*.json.gz")):
        plugin, run = path.parent.name, path.name.removeprefix("perf-").removesuffix(".json.gz")
        report = read_report(path)
        names = [i["name"] for i in report["implementations"]]
        wholes[run, plugin] = [w for w in report.get("wholes", ()) if w["operator"] == "msa" and names[w["implementation"]] == plugin]
    return wholes


class Runs:
    def __init__(self, folder):
        self.runs = load(folder)
        self.wholes = load_wholes(folder)

    def whole(self, run, plugin, context):
        """What is estimated of a whole, beside how many chunks it has; None: nothing."""
        for w in self.wholes.get((run, plugin), ()):
            if w["context"] == context and w.get("estimate"):
                return {**w["estimate"], "chunks": w["chunks"], "verified": w["verified"]}
        return None

    def run_of(self, run, plugin, **point):
        """The run that has `msa` of the plugin at this point, of those that time such points: the first, or else `run`."""
        return next((r for r in (run, *ALSO_IN.get(run, ())) if self.find(r, plugin, "msa", **point)), run)

    def find(self, run, plugin, operator, by=None, **point):
        """The item of `operator` of `by` (default: the plugin) in that plugin's run."""
        for (phase, context, tokens, batch, selection, op, name), item in self.runs.get((run, plugin), {}).items():
            at = {"phase": phase, "context": context, "tokens": tokens, "batch": batch, "selection": selection}
            if op == operator and name == (by or plugin) and all(at[k] == v for k, v in point.items()):
                return item
        return None

    def best_dense(self, run, plugin, **point):
        found = [i for by in (plugin, "cudnn") if (i := self.find(run, plugin, "dense", by, **point)) is not None]
        names = {id(i): by for by in (plugin, "cudnn") if (i := self.find(run, plugin, "dense", by, **point)) is not None}
        if not found:
            return None, ""
        best = min(found, key=lambda i: i.alone)
        return best, names[id(best)]


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def told(item, how):
    return getattr(item, how)() if item is not None else "-"


def dense_cell(item, by):
    return f"{item.times()} ({by})" if item is not None else "-"


# Chunks of a whole are points like those of prefills.
ALSO_IN = {"prefill": ("whole-1m",)}
PREFILL = [("prefill", 2**13), ("prefill", 2**15), ("prefill", 2**17), ("prefill-1m", 2**20)]
DECODE = [("decode", 2**13, 1), ("decode", 2**17, 1), ("decode", 2**20, 1), ("decode-16", 2**13, 16), ("decode-16", 2**17, 16),
          ("decode-16-1m", 2**20, 16)]


def decode_name(context, batch):
    return f"decode, {size(context)}, {'one sequence' if batch == 1 else f'{batch} sequences'}"


def published(name):
    """Time and gain that perf/published.json has of public Triton kernels at such a point."""
    figures = {f["id"]: f for f in json.loads(PUBLISHED.read_text())["figures"]}
    taken, gain = figures.get(f"h200.{name}.triton"), figures.get(f"h200.{name}.gain")
    return f"{taken['value']:g} {taken['unit']}, {gain['value']:g}x" if taken and gain else "-"


def pair(alone, back, text):
    """Alone and, behind a slash, back to back."""
    if not back:
        return text(alone) if alone else "-"
    return f"{text(alone) if alone else '-'} / {text(back)}"


def whole_cells(runs, run, plugin, context=2**20):
    """Of a whole that is estimated: dense, msa with the number of chunks that it goes by, the gain."""
    whole = runs.whole(run, plugin, context)
    if whole is None:
        return ["-", "-", "-"]
    dense = f"{pair(whole['dense_us'], whole['dense_back_to_back_us'], time)} ({whole['dense']}, {whole['dense_chunks']} of {whole['chunks']} chunks)"
    msa = f"{pair(whole['time_us'], whole['back_to_back_us'], time)} ({len(whole['contexts'])} of {whole['chunks']} chunks){'' if whole['verified'] else '?'}"
    gain = pair(whole["gain_over_dense"], whole["back_to_back_gain"], lambda x: f"{digits(x)}x")
    return [dense if whole["dense_us"] else "-", msa, gain]


def summary(runs):
    rows = []
    points = [(f"prefill, last 8K of {size(c)}", run, c, 1, f"prefill.{size(c)}.L8K") for run, c in PREFILL]
    points += [(decode_name(c, b), run, c, b, f"decode.{size(c)}.B{b}") for run, c, b in DECODE]
    for name, run, context, batch, known_as in points:
        at = {"context": context, "batch": batch, "selection": "random"}
        own = runs.run_of(run, "cuda_sm90", **at)
        msa = runs.find(own, "cuda_sm90", "msa", **at)
        rows.append([name, dense_cell(*runs.best_dense(own, "cuda_sm90", **at)), told(msa, "times"), told(msa, "gain"),
                     told(runs.find(run, "cuda", "msa", **at), "gain"), published(known_as)])
        if run == "prefill-1m":
            rows.append(["prefill, whole 1M, estimated", *whole_cells(runs, "whole-1m", "cuda_sm90"), "-", published("prefill.1M")])
    return table(["", "best dense", "MSA (`cuda_sm90`)", "gain", "gain of `cuda`", "Triton MSA, published"], rows)


def e4m3(runs):
    rows = []
    for name, run, at in (("prefill, last 8K of 1M", "prefill-1m-e4m3", {"context": 2**20, "batch": 1}),
                          ("decode, 1M, one sequence", "decode-e4m3", {"context": 2**20, "batch": 1}),
                          ("decode, 1M, 16 sequences", "decode-16-e4m3", {"context": 2**20, "batch": 16})):
        at["selection"] = "random"
        msa, index = (runs.find(run, "cuda_sm90", op, **at) for op in ("msa", "index"))
        rows.append([name, dense_cell(*runs.best_dense(run, "cuda_sm90", **at)), told(msa, "times"), told(msa, "gain"), told(index, "times"),
                     told(index, "share")])
    rows.insert(1, ["prefill, whole 1M, estimated", *whole_cells(runs, "whole-1m-e4m3", "cuda_sm90"), "-", "-"])
    return table(["", "best dense, bf16", "MSA (`cuda_sm90`)", "gain", "its `index`", "of the limit"], rows)


def stages(plugin):
    def made(runs):
        rows = []
        points = [(f"prefill, last 8K of {size(c)}", run, {"context": c, "batch": 1}) for run, c in PREFILL]
        points += [(decode_name(c, b), run, {"context": c, "batch": b}) for run, c, b in DECODE if b == 1]
        for name, run, at in points:
            at["selection"] = "random"
            cells, own = [], runs.run_of(run, plugin, **at)
            for op in ("index", "attend", "dense"):
                item = runs.find(own, plugin, op, **at)
                cells += [told(item, "times"), told(item, "share")]
            rows.append([name, *cells])
            if run == "prefill-1m" and plugin == "cuda_sm90":
                shared = runs.find("attend-shared64", plugin, "attend", context=2**20, batch=1, selection="shared64")
                rows.append(["the same, 64 neighbours select alike", "-", "-", told(shared, "times"), told(shared, "share"), "-", "-"])
        return table(["", "`index`", "of the limit", "`attend`", "of the limit", "`dense`", "of the limit"], rows)
    return made


def training(runs):
    rows = []
    for context in (2**14, 2**16):
        at = {"context": context, "batch": 1, "selection": "random"}
        row = [f"{size(context)} tokens"]

        def rate(run, op, by=None):
            return told(runs.find(run, "cuda_sm90", op, by, **at), "rate")

        times = [runs.find("training", "cuda_sm90", op, by, **at)
                 for op, by in (("attend", None), ("attend_backward", None), ("dense", "cudnn"), ("dense_backward", "cudnn"))]
        for op, run in (("attend", "training"), ("attend_backward", "training"), ("kl", "training-kl")):
            row.append(rate(run, op))
        for op in ("dense", "dense_backward"):
            for by in ("cuda_sm90", "cudnn"):
                row.append(rate("training", op, by))
        row.append(f"{digits((times[2].alone + times[3].alone) / (times[0].alone + times[1].alone))}x" if None not in times else "-")
        rows.append(row)
    return table(["", "`attend`", "`attend_backward`", "`kl`", "`dense`", "cuDNN", "`dense_backward`", "cuDNN", "forward and backward against cuDNN"], rows)


def training_of_cuda(runs):
    rows = []
    for context in (2**14, 2**16):
        at = {"context": context, "batch": 1, "selection": "random"}
        rows.append([f"{size(context)} tokens"] + [told(runs.find(run, "cuda", op, **at), "rate")
                                                   for op, run in (("attend", "training"), ("attend_backward", "training"), ("kl", "training-kl"))])
    return table(["", "`attend`", "`attend_backward`", "`kl`"], rows)


def vision(runs):
    rows = []
    for plugin, context in (("cuda_sm90", 2**14), ("cuda_sm90", 2**16), ("cuda", 2**14)):
        at = {"context": context, "batch": 1}
        whole, turn, attend = (runs.find("vision", plugin, op, **at) for op in ("vit3d", "rope3d", "vit_attend"))
        rows.append([f"`{plugin}`, {size(context)} patches", told(whole, "times"), told(turn, "times"), told(turn, "share"), told(attend, "times"),
                     told(attend, "rate"), told(attend, "share"), told(runs.find("vision", plugin, "vit_attend", "cudnn", **at), "times")])
    return table(["", "`vit3d`", "`rope3d`", "of the limit", "`vit_attend`", "useful", "of the limit", "`vit_attend` of cuDNN"], rows)


def limits(runs):
    found = [item.ceilings for of_run in runs.runs.values() for item in of_run.values()]
    if not found:
        return "-"
    flops = sorted(c["flops"]["bf16"] / 1e12 for c in found)
    e4m3 = sorted(c["flops"]["e4m3"] / 1e15 for c in found if "e4m3" in c["flops"])
    reads = sorted(c["bytes_per_s"] / 1e12 for c in found)
    if not e4m3:
        raise SystemExit("gpu_speed.py: no report has a limit of e4m3; publish one that has")
    return (f"Limits, measured between the samples of every point: {flops[0]:.0f} to {flops[-1]:.0f} TFLOP/s in bf16, {e4m3[0]:.2f} to {e4m3[-1]:.2f} PFLOP/s "
            f"in e4m3, reading at {reads[0]:.2f} to {reads[-1]:.2f} TB/s.")


TABLES = {"summary": summary, "stages of cuda_sm90": stages("cuda_sm90"), "stages of cuda": stages("cuda"), "training": training,
          "training of cuda": training_of_cuda, "vision": vision, "e4m3": e4m3, "limits": limits}


def rewritten(text, runs):
    def put(match):
        name = match.group(1)
        if name not in TABLES:
            raise SystemExit(f"table {name}: there is none of that name; use one of {', '.join(TABLES)}")
        return f"<!-- table {name} -->\n\n{TABLES[name](runs)}\n\n<!-- end of {name} -->"
    return re.sub(r"<!-- table ([^>]+?) -->\n.*?<!-- end of \1 -->", put, text, flags=re.S)


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 64
    for page in PAGES:
        if not page.is_file():
            raise SystemExit(f"gpu_speed.py: {page.relative_to(ROOT)}: is not there")
    runs, stale, pages = Runs(REPORTS), 0, "".join(page.read_text() for page in PAGES)
    if not runs.runs:
        raise SystemExit(f"gpu_speed.py: {REPORTS.relative_to(ROOT)}: has no PLUGIN/perf-RUN.json.gz; put the reports there")
    for name in TABLES:
        begun, ended = pages.count(f"<!-- table {name} -->"), pages.count(f"<!-- end of {name} -->")
        if begun == 0 or begun != ended:
            print(f"gpu_speed.py: table {name}: begins {begun} times and ends {ended} times on the pages; put both its markers there", file=sys.stderr)
            stale += 1
    for page in PAGES:
        text = page.read_text()
        if "<!-- table " not in text:
            print(f"gpu_speed.py: {page.relative_to(ROOT)}: has no table any more; put its markers back", file=sys.stderr)
            stale += 1
        now = rewritten(text, runs)
        if arguments and now != text:
            print(f"gpu_speed.py: {page.relative_to(ROOT)}: is not what the reports say; run docs/gpu_speed.py", file=sys.stderr)
            stale += 1
        elif not arguments and now != text:
            page.write_text(now)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
