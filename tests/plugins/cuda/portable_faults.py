# SPDX-License-Identifier: Apache-2.0
"""Faults of the kernels of plugin `cuda`; read by kernel_faults.py."""

# name: (source in kernels/, text that must be there exactly once, what replaces it, cases)
FAULTS = {
    # Every row that a 16-bit axis of a grid has no room for is left out.
    "combine_grid_limit": (
        "cuda/combine.cu", "const std::int64_t all = c.rows * c.heads;",
        "const std::int64_t all = c.rows * c.heads < 65535 ? c.rows * c.heads : 65535;", "combine/*"),
    # The first lane's maximum is taken for that of all parts.
    "combine_short_maximum": ("cuda/combine.cu", "for (int other = warp / 2; other > 0; other /= 2)", "for (int other = 0; other > 0; other /= 2)", "combine/*"),
    # Positions count from the first token of the call.
    "norm_rope_position": (
        "cuda/norm_rope.cu", "c.rows.place(row).position;", "c.rows.place(row).position < 0 ? -1 : row - c.rows.cu_seqlens_q[c.rows.place(row).sequence];",
        "qk_norm_rope/*"),
    # t goes on where a segment ends.
    "rope3d_segment": ("cuda/rope3d.cu", "patch / g.frame() % length", "patch / g.frame()", "rope3d/*"),
    # What an earlier run left behind the last segment stays there.
    "vit3d_dirty_segments": (
        "cuda/rope3d.cu", "if (padded.boundaries == nullptr) return;", "return;", "vit3d/*"),
    # Counts start from what an earlier run left.
    "readers_dirty_workspace": (
        "cuda/readers.cu", "static_cast<std::size_t>(chunks * lists()) * sizeof *counts", "0", "attend_backward/*"),
    # Rows of queries are loaded over those that slower warps still read.
    "backward_race": ("cuda/key_gradients.cu", "      __syncthreads();  // all have this step, and are done with the one before\n", "", "*_backward/*"),
    # The last rows that read a block are left out.
    "backward_missed_tail": ("cuda/key_gradients.cu", "(rows + step_rows - 1) / step_rows", "rows / step_rows", "*_backward/*"),
    # Two rows share their ids.
    "backward_shared_ids": ("cuda/query_gradients.cu", "r.readers.ids.row(row, kv_head)", "r.readers.ids.row(row / 2 * 2, kv_head)", "attend_backward/*"),
    # The sums of one warp are left out.
    "backward_lost_warp": ("cuda/query_gradients.cu", "other < warps; ++other", "other < warps - 1; ++other", "*_backward/*"),
    # Keys behind a token's own are weighed.
    "kl_past_diagonal": ("cuda/kl_readings.cu", "seen < task_.keys.count ? seen : task_.keys.count", "task_.keys.count", "kl/*"),
    # Queries are read before they have come.
    "kl_unawaited_copy": ("cuda/kl_readings.cu", "        wait_copies<0>();\n        __syncwarp();\n", "        __syncwarp();\n", "kl/*"),
    # The first head's readers stand for those of all heads.
    "kl_one_head": ("cuda/kl_sums.cu", "head < c.kv_heads; ++head", "head < 1; ++head", "kl/*"),
    # Sums of keys start from what an earlier run left.
    "kl_dirty_workspace": ("cuda/kl.cu", "static_cast<std::size_t>(p.total_kv) * width * sizeof(float)", "0", "kl/*"),
    # Warps weigh keys by the greatest score of what the others have written so far.
    "attend_race": (
        "cuda/narrow_attention.cu", "    __syncthreads();\n\n    attention_rows<1, octets> part;", "    attention_rows<1, octets> part;",
        "attend/*"),
    # The last keys of a row that end inside a part are left out.
    "attend_missed_tail": (
        "cuda/narrow_attention.cu", "(end - first + part_keys - 1) / part_keys", "(end - first) / part_keys", "attend/*"),
    # Two rows share their ids.
    "attend_shared_ids": (
        "cuda/narrow_attention.cu", "call.ids + tile.first * call.id_row_stride", "call.ids + tile.first / 2 * 2 * call.id_row_stride",
        "attend/*"),
    # The first two tokens of every page take each other's place.
    "attend_page_offset": (
        "cuda/attention_keys.cuh in cuda/narrow_attention.cu", "position % page_size * from.token_stride",
        "(position % page_size ^ (position % page_size < 2 && page_size > 1 ? 1u : 0u)) * from.token_stride", "attend/*"),
    # Page times stride in 32 bits.
    "attend_page_32_bits": (
        "cuda/attention_keys.cuh in cuda/narrow_attention.cu", "page * from.page_stride +", "static_cast<std::int32_t>(page * from.page_stride) +",
        "attend/*"),
    # Values past a sequence's end meet weights of 0, and may be NaN.
    "attend_past_length": (
        "cuda/attention_keys.cuh in cuda/narrow_attention.cu", "if (position < limit) own", "if (position < key_list::none) own", "attend/*"),
    # The lengths of the run before the capture.
    "attend_stale_lengths": (
        "cuda/attend.cu", "void attend_as(const attend_call& call, const run_context& context, bool follows) {\n",
        """void attend_as(const attend_call& given, const run_context& context, bool follows) {
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
        "cuda/gathered_attention.cu", "  while (lane == 0 && !is_first && load_acquired(done) != pair.rank) __nanosleep(64);\n", "", "attend/*"),
    # Tokens see what only the last of their tile does.
    "dense_later_keys": ("cuda/dense.cu", "if (key + S::tile_keys > least)", "if (key + S::tile_keys > most)", "dense/*"),
    # Tiles are used before all warps' copies of them have come.
    "dense_race": (
        "cuda/dense.cu", "    wait_copies<stages - 2>();\n    __syncthreads();\n    copy_next();", "    wait_copies<stages - 2>();\n    copy_next();",
        "dense/*"),
    # Partial results of the last warp's spans are left out.
    "dense_lost_spans": (
        "cuda/attention_spans.cuh in cuda/narrow_attention.cu", "for (int other = 1; other < warps; ++other)", "for (int other = 1; other + 1 < warps; ++other)",
        "dense/m3.tp4/q1.n32K/*"),
    # Patches see as much as a token of their place would.
    "vit_causal": (
        "cuda/attention_keys.cuh in cuda/dense.cu", "tile.causal = rows.kv_lens != nullptr;",
        "tile.causal = 1; tile.first_limit = rows.kv_lens == nullptr ? row - rows.cu_seqlens_q[place.sequence] + 1 : tile.first_limit;",
        "vit_attend/*"),
    # Tiles are said to be there before they have come, which they do late, so that a device shows it each time.
    "sweep_race": (
        "cuda/score_sweep.cu",
        "      copy_tile<pieces>(keys, std::int64_t{tile} * tile_keys, end, c.width, tiles + ahead.stage * tile_size);\n"
        "      arrive_after_copies(&meeting.full[ahead.stage]);\n",
        "      arrive(&meeting.full[ahead.stage]);\n"
        "      __nanosleep(5000);\n"
        "      copy_tile<pieces>(keys, std::int64_t{tile} * tile_keys, end, c.width, tiles + ahead.stage * tile_size);\n", "score/*"),
    # The keys of a last tile that is not full are left out.
    "sweep_missed_tail": ("cuda/score_sweep.cu", "idle ? 0 : ceil_div(end, tile_keys)", "idle ? 0 : end / tile_keys", "score/*"),
    # Of the parts of a row the last is left out.
    "sweep_lost_part": ("cuda/merge_lists.cu", "split < s.splits; ++split", "split < s.splits - 1; ++split", "index/*"),
    # Keys of a page that ends in a tile are taken from the place of their neighbour.
    "sweep_page_offset": (
        "cuda/index_keys.cuh in cuda/score_sweep.cu", "(i * rows_at_once + row) % 32);", "((i * rows_at_once + row) ^ 16) % 32);", "score/*"),
    # Units are multiplied before they have arrived.
    "stream_race": ("cuda/score_stream.cu", "        wait_copies<stages - 1>();\n", "", "score/*"),
    # Of tiles that can't be divided evenly, nobody has the rest.
    "stream_lost_tiles": (
        "cuda/sequence_tiles.cuh in cuda/score_stream.cu", "end = begin + least + (number < rest ? 1 : 0);", "end = begin + least;", "score/*"),
    # Pages are taken to lie one behind the other.
    "stream_page_offset": ("cuda/score_stream.cu", "    tile_ = later_;\n",
        "    later_.first = tile_.first + (step_ - 1) * tile_keys * c_.keys.token_stride * 2;\n    tile_ = later_;\n", "score/*"),
    # A replay sees the lengths of the capture.
    "score_stale_lengths": (
        "cuda/score.cu", "void score(const index_call& call, const run_context& context) {\n",
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
    "select_shared_ids": ("cuda/select.cu", "c.ids + row * c.id_row_stride", "c.ids + row / 2 * 2 * c.id_row_stride", "select/*"),
    # Rows that a 16-bit axis of a grid has no room for are left out.
    "select_grid_limit": (
        "cuda/select.cu", "const std::int64_t rows = c.rows.tokens() * c.heads;",
        "const std::int64_t rows = min(c.rows.tokens() * c.heads, std::int64_t{65535});", "select/*"),
    # The block on the last place is taken for one that has none.
    "select_last_place": ("cuda/select.cu", "candidates[k] >= floor", "candidates[k] > floor", "select/*"),
    # The sums of one warp are left out.
    "index_lost_warp": ("cuda/index.cu", "w < warps; ++w", "w < warps - 1; ++w", "index/*"),
}
