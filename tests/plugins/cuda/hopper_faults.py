# SPDX-License-Identifier: Apache-2.0
"""Faults of the kernels of plugin `cuda_sm90`; read by kernel_faults.py."""

# In little workspace small cases go through it in several steps. The interpreted plugin has it so; of others, these faults.
LITTLE_WORKSPACE = ("MSABENCH_ATTEND_PARTIAL_BYTES=4e6", "MSABENCH_MOST_CHUNK=24", "MSABENCH_LEAST_PIECE=8")
NEED_LITTLE_WORKSPACE = ("kl_blocks_lost_chunk", "scattered_lost_range")

# name: (source in kernels/, text that must be there exactly once, what replaces it, cases)
FAULTS = {
    # The blocks of a row that don't divide evenly among its thread blocks are left out.
    "decode_lost_blocks": (
        "cuda_sm90/decode_attention.cuh in cuda_sm90/decode.cu", "(count + owner.spans - 1) >> owner.places", "count >> owner.places", "attend/*"),
    # Results of other thread blocks are put together before they have come.
    "decode_unawaited_results": (
        "cuda_sm90/decode_attention.cuh in cuda_sm90/decode.cu", "  begin_meeting();\n  end_meeting();\n", "", "attend/*"),
    # A token sees the key behind its own.
    "decode_later_key": (
        "cuda_sm90/decode_attention.cuh in cuda_sm90/decode.cu", "key + 8 * n + i % 2 < limit ?", "key + 8 * n + i % 2 <= limit ?", "attend/*"),
    # Index keys are multiplied before they have come.
    "decode_unawaited_keys": (
        "cuda_sm90/score_stream.cuh in cuda_sm90/decode.cu", "            wait_for(&shared.full[warp][place.stage], place.parity);\n", "", "index/*"),
    # Products are multiplied by the scale of the next key.
    "decode_other_scale": ("cuda_sm90/score_stream.cuh in cuda_sm90/decode.cu", "scales[8 * i + g]", "scales[8 * i + (g ^ 1)]", "index/*"),
    # Keys are multiplied before they have come.
    "wide_unawaited_copy": (
        "cuda_sm90/wide_attention.cu",
        "      wait_for(shared.keys_ready + keys_at.stage, keys_at.parity);\n      wait_for(shared.values_ready",
        "      wait_for(shared.values_ready", "dense/*"),
    # Values past a sequence's end meet weights of 0, and may be NaN.
    "wide_past_length": ("cuda_sm90/wide_attention.cu", "if (key + S::tile_keys > work.tile.length)", "if (key > work.tile.length)", "dense/*"),
    # A token sees the key behind its own.
    "wide_later_key": ("cuda_sm90/wide_attention.cu", ">= limits[i / 2 % 2]", "> limits[i / 2 % 2]", "dense/*"),
    # Every sequence reads the first one's pages.
    "wide_first_pages": (
        "cuda_sm90/wide_attention.cu", "from.block_table[tile.sequence * from.table_stride + key / page_size]", "from.block_table[key / page_size]",
        "dense/*"),
    # Sums of another greatest score are added up as they are.
    "wide_stale_sums": ("cuda_sm90/wide_attention.cu", "out[j] *= factors[j / 2 % 2]", "out[j] *= 1", "dense/*"),
    # Values are multiplied by the scales of their keys.
    "scattered_other_scale": (
        "cuda_sm90/attend_scattered.cu", "scale_columns(scores, shared.scales[values_at.stage])", "scale_columns(scores, shared.scales[keys_at.stage])",
        "attend/*"),
    # What a token has of earlier ranges of blocks is left out.
    "scattered_lost_range": (
        "cuda_sm90/attend_combine.cu", "        sums.take_up(call_, own.row, head, low);\n", "", "attend/*"),
    # Sums of another greatest score are added up as they are.
    "scattered_stale_sums": (
        "cuda_sm90/attend_combine.cu", "stats[i].y * cuda::exp2_approximately(stats[i].x - reference)", "stats[i].y", "attend/*"),
    # The place of a block's results is given to the next ones before they have been added up. Late, so that a device shows it each time.
    "scattered_early_refill": (
        "cuda_sm90/attend_combine.cu",
        "        const float factors[2] = {weights_[i][g], weights_[i][g + 8]};\n"
        "#pragma unroll\n"
        "        for (int part = 0; part < parts; ++part) sums.add(results_[from_.stage][part][lane_], part, factors[part / 4]);\n"
        "        __syncwarp();\n"
        "        from_.next();\n"
        "        ++free_;\n"
        "        fill(own, asked);\n"
        "        if (asked == own.count) fill(next, asked_of_next_);\n",
        "        const int here = from_.stage;\n"
        "        from_.next();\n"
        "        ++free_;\n"
        "        fill(own, asked);\n"
        "        if (asked == own.count) fill(next, asked_of_next_);\n"
        "        __nanosleep(20000);\n"
        "        const float factors[2] = {weights_[i][g], weights_[i][g + 8]};\n"
        "#pragma unroll\n"
        "        for (int part = 0; part < parts; ++part) sums.add(results_[here][part][lane_], part, factors[part / 4]);\n"
        "        __syncwarp();\n", "attend/*"),
    # A token of a tile reads what its neighbours have selected.
    "shared_unselected": ("cuda_sm90/attend_shared.cu", "block.readers >> token & 1 ? max(left, 0) : 0", "max(left, 0)", "attend/*"),
    # dS is multiplied while the other warpgroup writes it.
    "blocks_race": (
        "cuda_sm90/block_gradients.cu", "      fence_for_async();\n      meet(multipliers_meet, multipliers);\n      const std::uint64_t rows_by_keys",
        "      fence_for_async();\n      const std::uint64_t rows_by_keys", "*_backward/*"),
    # dq of the last rows that read a block is left out.
    "blocks_missed_tail": (
        "cuda_sm90/block_gradients.cu", "store_dq(at, dq, dq_at, (task.tokens - first) * c.group)",
        "store_dq(at, dq, dq_at, (task.tokens - first) / step_tokens * step_rows)", "*_backward/*"),
    # Keys behind a token's own are weighed.
    "blocks_past_diagonal": ("cuda_sm90/block_gradients.cu", "at.row(i / 2) < hidden ? weight : 0", "weight", "*_backward/*"),
    # Of the pieces of a long list of readers the last is left out.
    "blocks_lost_piece": ("cuda_sm90/block_gradients.cu", "piece < pieces; ++piece", "piece < pieces - 1; ++piece", "*_backward/*"),
    # Differences are multiplied while the other warpgroup writes them, which is late, so that a device shows it each time.
    "kl_blocks_race": (
        "cuda_sm90/kl_gradients.cu",
        "    __syncwarp();  // all lanes have their teacher\n"
        "#pragma unroll\n"
        "    for (int step = 0; step < row_steps; ++step) {\n"
        "      store_matrices(stored_at_ ^ (step * 32), high[step]);\n"
        "      store_matrices((stored_at_ + part_bytes) ^ (step * 32), low[step]);\n"
        "    }\n"
        "    fence_for_async();\n"
        "    meet(multipliers_meet, multipliers);\n"
        "    float dq",
        "    __syncwarp();\n"
        "    if (at_.group == 0) __nanosleep(20000);\n"
        "#pragma unroll\n"
        "    for (int step = 0; step < row_steps; ++step) {\n"
        "      store_matrices(stored_at_ ^ (step * 32), high[step]);\n"
        "      store_matrices((stored_at_ + part_bytes) ^ (step * 32), low[step]);\n"
        "    }\n"
        "    fence_for_async();\n"
        "    float dq", "kl/*"),
    # The normalisers of rows count keys behind a token's own.
    "kl_blocks_past_diagonal": ("cuda_sm90/kl_scores.cu", "__all_sync(~0u, min(seen[0], seen[1]) == block_keys)", "true", "kl/*"),
    # Of the parts of differences the low one is left out of dq.
    "kl_blocks_lost_part": ("cuda_sm90/kl_gradients.cu", "part < 2; ++part", "part < 1; ++part", "kl/*"),
    # The first head's readers stand for those of all heads.
    "kl_blocks_one_head": ("cuda_sm90/kl_sums.cu", "head < readers.heads; ++head", "head < 1; ++head", "kl/*"),
    # The losses of chunks after the first are left out.
    "kl_blocks_lost_chunk": ("cuda_sm90/kl_sums.cu", "chunks * r.loss_items()", "r.loss_items()", "kl/*"),
    # Keys are multiplied before they have come.
    "prefill_index_unawaited_copy": (
        "cuda_sm90/prefill_index.cu", "    wait_for(&ring.full[place.stage], place.parity);\n    float products", "    float products", "index/*"),
    # A row sees the key behind its last one.
    "prefill_index_later_key": ("cuda_sm90/row_maxima.cuh in cuda_sm90/prefill_index.cu", ">= seen[i / 2]", "> seen[i / 2]", "index/*"),
    # Negative maxima stay in the order of integers, which is that of their sizes.
    "prefill_index_negative": (
        "cuda_sm90/row_maxima.cuh in cuda_sm90/prefill_index.cu", "are_right &= static_cast<std::uint32_t>(all) <= infinity", "are_right &= all == all", "index/*"),
    # What no scaled product is above is put too low.
    "prefill_index_low_bound": (
        "cuda_sm90/key_scales.cuh in cuda_sm90/prefill_index.cu", ": __uint_as_float(most);", ": 0.25f * __uint_as_float(most);", "index/*"),
    # Queries in registers are of other rows than the products.
    "prefill_index_other_rows": ("cuda_sm90/prefill_index.cu", "swizzled(row + i % 2 * 8, step", "swizzled(row + i / 2 * 8, step", "index/*"),
    # Of the parts of a row's keys the last is left out.
    "prefill_index_lost_part": (
        "cuda_sm90/prefill_index.cu", "cuda::merge_lists(call, s.lists, plan.parts, stream)", "cuda::merge_lists(call, s.lists, plan.parts - 1, stream)",
        "index/*"),
}
