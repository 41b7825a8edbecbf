#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants one fault each into a source of plugin `cuda`, for the device's conformance run.

usage: kernel_faults.py FAULT KERNELS TARGET   writes TARGET, that source of the folder KERNELS with the fault
       kernel_faults.py --list                 a line for each: its name, its source, and the cases that have to see it
       kernel_faults.py --check KERNELS        whether every fault still has its place

The plugin with a fault is TARGET in place of its source, linked with the objects of all others.
"""
import pathlib
import sys

# name: (source, text that must be there exactly once, what replaces it, cases)
FAULTS = {
    # Every row that a 16-bit axis of a grid has no room for is left out.
    "combine_grid_limit": (
        "combine.cu", "const std::int64_t all = c.rows * c.heads;",
        "const std::int64_t all = c.rows * c.heads < 65535 ? c.rows * c.heads : 65535;", "combine/*"),
    # The first lane's maximum is taken for that of all parts.
    "combine_short_maximum": ("combine.cu", "for (int other = warp / 2; other > 0; other /= 2)", "for (int other = 0; other > 0; other /= 2)", "combine/*"),
    # Positions count from the first token of the call.
    "norm_rope_position": (
        "norm_rope.cu", "c.rows.place(row).position;", "c.rows.place(row).position < 0 ? -1 : row - c.rows.cu_seqlens_q[c.rows.place(row).sequence];",
        "qk_norm_rope/*"),
    # t goes on where a segment ends.
    "rope3d_segment": ("rope3d.cu", "patch / g.frame() % length", "patch / g.frame()", "rope3d/*"),
    # What an earlier run left behind the last segment stays there.
    "vit3d_dirty_segments": (
        "rope3d.cu", "if (padded.boundaries == nullptr) return;", "return;", "vit3d/*"),
    # Counts start from what an earlier run left.
    "readers_dirty_workspace": (
        "readers.cu", "static_cast<std::size_t>(chunks * lists()) * sizeof *counts", "0", "attend_backward/*"),
    # Rows of queries are loaded over those that slower warps still read.
    "backward_race": ("key_gradients.cu", "      __syncthreads();  // all have this step, and are done with the one before\n", "", "*_backward/*"),
    # The last rows that read a block are left out.
    "backward_missed_tail": ("key_gradients.cu", "(rows + step_rows - 1) / step_rows", "rows / step_rows", "*_backward/*"),
    # Two rows share their ids.
    "backward_shared_ids": ("query_gradients.cu", "r.readers.ids.row(row, kv_head)", "r.readers.ids.row(row / 2 * 2, kv_head)", "attend_backward/*"),
    # The sums of one warp are left out.
    "backward_lost_warp": ("query_gradients.cu", "other < warps; ++other", "other < warps - 1; ++other", "*_backward/*"),
    # Keys behind a token's own are weighed.
    "kl_past_diagonal": ("kl_readings.cu", "seen < task_.keys.count ? seen : task_.keys.count", "task_.keys.count", "kl/*"),
    # Queries are read before they have come.
    "kl_unawaited_copy": ("kl_readings.cu", "        wait_copies<0>();\n        __syncwarp();\n", "        __syncwarp();\n", "kl/*"),
    # The first head's readers stand for those of all heads.
    "kl_one_head": ("kl_sums.cu", "head < c.kv_heads; ++head", "head < 1; ++head", "kl/*"),
    # Sums of keys start from what an earlier run left.
    "kl_dirty_workspace": ("kl_sums.cu", "first_chunk ? make_float2(0, 0) : pair", "pair", "kl/*"),
}


def places(name, kernels):
    source, old, _, _ = FAULTS[name]
    path = pathlib.Path(kernels) / source
    return path.read_text(encoding="utf-8").count(old) if path.exists() else 0


def main(arguments):
    if arguments == ["--list"]:
        for name, (source, _, _, cases) in FAULTS.items():
            print(name, source, cases)
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
    text = (pathlib.Path(kernels) / source).read_text(encoding="utf-8")
    pathlib.Path(target).write_text(text.replace(old, new), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
