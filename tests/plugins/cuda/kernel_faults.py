#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants one fault each into a source of plugin `cuda`, for the device's conformance run.

usage: kernel_faults.py FAULT KERNELS TARGET   writes TARGET, that source of the folder KERNELS with the fault
       kernel_faults.py --list                 a line for each: its name, its source, and the cases that have to see it
       kernel_faults.py --check KERNELS        whether every fault still has its place

The plugin with a fault is TARGET in place of its source, linked with the objects of all others. "HEADER in SOURCE" is a fault in
a header as that source sees it: TARGET then has the text of the headers in it.
"""
import pathlib
import re
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
    "kl_dirty_workspace": ("kl.cu", "static_cast<std::size_t>(p.total_kv) * width * sizeof(float)", "0", "kl/*"),
    # Warps weigh keys by the greatest score of what the others have written so far.
    "attend_race": (
        "narrow_attention.cu", "    __syncthreads();\n\n    attention_rows<1, octets> part;", "    attention_rows<1, octets> part;",
        "attend/*"),
    # The last keys of a row that end inside a part are left out.
    "attend_missed_tail": (
        "narrow_attention.cu", "(end - first + part_keys - 1) / part_keys", "(end - first) / part_keys", "attend/*"),
    # Two rows share their ids.
    "attend_shared_ids": (
        "narrow_attention.cu", "call.ids + tile.first * call.id_row_stride", "call.ids + tile.first / 2 * 2 * call.id_row_stride",
        "attend/*"),
    # The first two tokens of every page take each other's place.
    "attend_page_offset": (
        "attention_keys.cuh in narrow_attention.cu", "position % page_size * from.token_stride",
        "(position % page_size ^ (position % page_size < 2 && page_size > 1 ? 1u : 0u)) * from.token_stride", "attend/*"),
    # Page times stride in 32 bits.
    "attend_page_32_bits": (
        "attention_keys.cuh in narrow_attention.cu", "page * from.page_stride +", "static_cast<std::int32_t>(page * from.page_stride) +",
        "attend/*"),
    # Values past a sequence's end meet weights of 0, and may be NaN.
    "attend_past_length": (
        "attention_keys.cuh in narrow_attention.cu", "if (position < limit) own", "if (position < key_list::none) own", "attend/*"),
    # The lengths of the run before the capture.
    "attend_stale_lengths": (
        "attend.cu", "void attend(const attend_call& call, const run_context& context) {\n",
        """void attend(const attend_call& given, const run_context& context) {
  attend_call call = given;
  static std::int32_t* kept = nullptr;
  if (kept == nullptr) cudaMalloc(&kept, 1 << 20);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  cudaStreamCaptureStatus capturing;
  cudaStreamIsCapturing(stream, &capturing);
  if (capturing == cudaStreamCaptureStatusNone)
    cudaMemcpyAsync(kept, call.rows.kv_lens, static_cast<std::size_t>(call.rows.batch) * sizeof *kept, cudaMemcpyDeviceToDevice, stream);
  call.rows.kv_lens = kept;
""", "attend/*"),
    # Blocks of a token are added in whatever order they come.
    "attend_unordered_blocks": (
        "gathered_attention.cu", "  while (lane == 0 && !is_first && load_acquired(done) != pair.rank) __nanosleep(64);\n", "", "attend/*"),
    # Tokens see what only the last of their tile does.
    "dense_later_keys": ("dense.cu", "if (key + S::tile_keys > least)", "if (key + S::tile_keys > most)", "dense/*"),
    # Tiles are used before all warps' copies of them have come.
    "dense_race": (
        "dense.cu", "    wait_copies<stages - 2>();\n    __syncthreads();\n    copy_next();", "    wait_copies<stages - 2>();\n    copy_next();",
        "dense/*"),
    # Partial results of the last warp's spans are left out.
    "dense_lost_spans": (
        "attention_spans.cuh in narrow_attention.cu", "for (int other = 1; other < warps; ++other)", "for (int other = 1; other + 1 < warps; ++other)",
        "dense/*"),
    # Patches see as much as a token of their place would.
    "vit_causal": (
        "attention_keys.cuh in dense.cu", "tile.causal = rows.kv_lens != nullptr;",
        "tile.causal = 1; tile.first_limit = rows.kv_lens == nullptr ? row - rows.cu_seqlens_q[place.sequence] + 1 : tile.first_limit;",
        "vit_attend/*"),
    # Tiles are multiplied before they have arrived.
    "sweep_race": ("score_sweep.cu", "    wait_for(&meeting.full[place.stage], place.parity);\n", "", "score/*"),
    # The keys of a last tile that is not full are left out.
    "sweep_missed_tail": ("score_sweep.cu", "idle ? 0 : ceil_div(end, tile_keys)", "idle ? 0 : end / tile_keys", "score/*"),
    # Of the parts of a row the last is left out.
    "sweep_lost_part": ("merge_lists.cu", "split < s.splits; ++split", "split < s.splits - 1; ++split", "index/*"),
    # Keys of a page that ends in a tile are taken from the place of their neighbour.
    "sweep_page_offset": (
        "index_keys.cuh in score_sweep.cu", "(i * rows_at_once + row) % 32);", "((i * rows_at_once + row) ^ 16) % 32);", "score/*"),
    # Units are multiplied before they have arrived.
    "stream_race": ("score_stream.cu", "      wait_copies<stages - 2>();\n", "", "score/*"),
    # Pages are taken to lie one behind the other.
    "stream_page_offset": ("score_stream.cu", "if (tile < end) first = keys.key(tile);", "first += step * keys.stride;", "score/*"),
    # A replay sees the lengths of the capture.
    "score_stale_lengths": (
        "score.cu", "void score(const index_call& call, const run_context& context) {\n",
        """void score(const index_call& given, const run_context& context) {
  index_call call = given;
  static std::int32_t* kept = nullptr;
  if (kept == nullptr) cudaMalloc(&kept, 1 << 20);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  cudaStreamCaptureStatus capturing;
  cudaStreamIsCapturing(stream, &capturing);
  if (capturing == cudaStreamCaptureStatusNone)
    cudaMemcpyAsync(kept, call.rows.kv_lens, call.rows.batch * sizeof *kept, cudaMemcpyDeviceToDevice, stream);
  call.rows.kv_lens = kept;
""", "score/*"),
    # Two rows share their ids.
    "select_shared_ids": ("select.cu", "c.ids + row * c.id_row_stride", "c.ids + row / 2 * 2 * c.id_row_stride", "select/*"),
    # Rows that a 16-bit axis of a grid has no room for are left out.
    "select_grid_limit": (
        "select.cu", "const std::int64_t rows = c.rows.tokens() * c.heads;",
        "const std::int64_t rows = min(c.rows.tokens() * c.heads, std::int64_t{65535});", "select/*"),
    # The block on the last place is taken for one that has none.
    "select_last_place": ("select.cu", "candidates[k] >= floor", "candidates[k] > floor", "select/*"),
    # The sums of one warp are left out.
    "index_lost_warp": ("index.cu", "w < warps; ++w", "w < warps - 1; ++w", "index/*"),
}


def read(source, kernels):
    """Text of a source; of HEADER in SOURCE, that of the source with its headers from the folder in place, each once."""
    *header, source = source.split(" in ")
    folder, include, seen = pathlib.Path(kernels), re.compile(r'#include "kernels/cuda/([^"]+)"\n'), set()
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
