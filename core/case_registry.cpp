// SPDX-License-Identifier: Apache-2.0
// The named shapes, ragged batches and families of case names.
#include <algorithm>
#include <array>

#include "core/case.h"
#include "core/error.h"

namespace msabench {

namespace {

// hq, hkv, d, hi, di, block, topk, local, init. `m3`: MiniMax M3. `pilot`: the paper's pilot model.
constexpr named_shape shapes[] = {
    {"m3", {64, 4, 128, 4, 128, 128, 16, 1, 0}},
    {"pilot", {32, 4, 128, 4, 128, 128, 16, 1, 0}},
};

std::vector<sequence> one_to_300() {
  std::vector<sequence> all;
  for (std::int64_t n = 1; n <= 300; ++n) all.push_back({1, n});
  return all;
}

std::vector<ragged_batch> make_ragged() {
  return {
      {"1to300", "300 sequences of 1..300 tokens, one query each", one_to_300()},
      {"edges",
       "decode at and around block borders",
       {{1, 127},
        {1, 128},
        {1, 129},
        {1, 255},
        {1, 257},
        {1, 2047},
        {1, 2048},
        {1, 2049},
        {1, 2175},
        {1, 2176},
        {1, 2177}}},
      {"draft",
       "1..8 query tokens that cross a block border",
       {{1, 129}, {2, 129}, {3, 130}, {4, 2050}, {5, 131}, {6, 2179}, {7, 263}, {8, 2050}}},
      {"holes",
       "sequences without tokens at the front, in the middle and at the end, and padding rows between real ones",
       {{0, 0}, {1, 0}, {5, 133}, {0, 200}, {3, 1}, {7, 263}, {1, 2049}, {1, 0}, {2, 385}, {0, 0}}},
      {"pad16", "graph padding: every sixteenth row is empty", {{5, 300}, {1, 0}, {15, 2200}, {1, 0}, {10, 10}}},
      {"chunks", "chunked prefill with a prefix that is no multiple of the block", {{31, 97}, {32, 161}, {33, 33}}},
      {"tails",
       "one token into a block, and one short of its end",
       {{2, 129}, {2, 255}, {3, 2049}, {3, 2175}, {1, 385}, {1, 511}}},
      {"tiles", "query lengths around the tiles of kernels", {{64, 80}, {65, 65}, {1, 200}, {3, 700}}},
      {"three", "three sequences of different lengths", {{4, 517}, {1, 2600}, {7, 1033}}},
      {"small",
       "short sequences for shapes with small blocks",
       {{1, 1}, {2, 2}, {3, 5}, {17, 33}, {16, 64}, {1, 97}, {9, 257}, {1, 0}, {4, 500}}},
      {"idle", "nothing to do: sequences without query tokens", {{0, 0}, {0, 129}, {0, 1}}},
  };
}

const std::vector<family_info>& make_families() {
  static const std::vector<family_info> all = {
      {"random",
       "normal queries, keys and values; flat and sharp scale the scores; realistic and shared64 overlap in what is "
       "selected",
       {op::attend, op::dense, op::msa, op::score, op::index, op::attend_backward, op::dense_backward, op::kl,
        op::vit_attend, op::vit3d},
       {"", "flat", "sharp", "realistic", "shared64"}},
      {"block_code",
       "equal weights, values that name their block by channel (high: by the rest of its number)",
       {op::attend, op::dense, op::msa, op::vit_attend, op::vit3d},
       {"", "high"}},
      {"key_code",
       "equal weights, values of one block that name their key by channel (high: by the rest of its offset)",
       {op::attend, op::dense, op::msa, op::vit_attend, op::vit3d},
       {"", "high"}},
      {"carry",
       "equal weights, values that cancel but for one small rest: 16-bit accumulation loses it (all: over all keys)",
       {op::attend, op::dense, op::msa, op::attend_backward, op::dense_backward, op::vit_attend, op::vit3d},
       {"", "all"}},
      {"needle",
       "one key carries nearly all weight, cycling over slots and offsets",
       {op::attend, op::dense, op::msa, op::vit_attend},
       {""}},
      {"cancel",
       "keys in pairs that weigh the same and whose values cancel: outputs near 0",
       {op::attend, op::dense, op::msa},
       {""}},
      {"offset", "values with a mean of eight standard deviations", {op::attend, op::dense, op::msa}, {""}},
      {"hot_flat",
       "normal scores about +-30, +-100 or +-1000; about -60000, below any finite number that stands for a masked key",
       {op::attend, op::dense, op::msa, op::score, op::index},
       {"p30", "n30", "p100", "n100", "p1000", "n1000", "n60000"}},
      {"hot_peaked",
       "scores of standard deviation 5, 11, 21 or 43: nearly all weight on one key",
       {op::attend, op::dense, op::msa},
       {"s5", "s11", "s21", "s43"}},
      {"ramp",
       "block maxima that rise or fall from block to block, or are all equal",
       {op::attend, op::dense, op::msa, op::score, op::index},
       {"rising", "falling", "equal"}},
      {"planted",
       "normal values, and an index branch whose selection is planted; all families of msa but random plant it",
       {op::msa},
       {""}},
      {"index_code",
       "each index key of a block is named by a direction that one row and head asks for (ties: few magnitudes)",
       {op::score, op::index},
       {"", "ties"}},
      {"negative", "all index scores negative", {op::score, op::index}, {""}},
      {"recorded",
       "values of a file: recorded.NAME has those of DIR/NAME.safetensors",
       {op::attend, op::dense, op::msa, op::score, op::index},
       {}},
      {"special", "index keys that are NaN or infinite", {op::score, op::index}, {"nan", "inf"}},
      {"select",
       "given block scores that are hard to select from",
       {op::select},
       {"random", "gap", "step", "tie17", "equal", "negative", "few", "outlier", "cluster", "rising", "heads", "nan",
        "inf", "huge", "zero"}},
      {"partials",
       "partial results: as of split keys; one of 31 times the mass; without keys; far from 0; with vanishing weights",
       {op::combine},
       {"random", "skewed", "holes", "large", "tiny"}},
      {"tokens",
       "heads of tokens: normal; so small that eps counts; results below the normal range; one channel above all",
       {op::qk_norm_rope, op::rope3d},
       {"random", "small", "subnormal", "outlier"}},
  };
  return all;
}

}  // namespace

std::span<const named_shape> named_shapes() { return shapes; }

std::span<const ragged_batch> ragged_batches() {
  static const std::vector<ragged_batch> all = make_ragged();
  return all;
}

lengths_spec lengths_of(std::span<const sequence> batch) {
  if (batch.empty()) throw suite_error("a batch without sequences has no lengths");
  lengths_spec lengths;
  const sequence first = batch.front();
  if (std::ranges::all_of(batch, [&](const sequence& s) { return s == first; }) && first.q_len > 0 &&
      first.kv_len > 0) {
    lengths.q_len = first.q_len;
    lengths.kv_len = first.kv_len;
    lengths.batch = std::ssize(batch);
    return lengths;
  }
  if (batch.size() == 1) throw suite_error("a single sequence of length 0 has no name");
  lengths.form = lengths_spec::kind::ragged;
  for (const auto& named : ragged_batches())
    if (std::ranges::equal(named.sequences, batch)) lengths.ragged_name = named.name;
  if (lengths.ragged_name.empty()) lengths.listed.assign(batch.begin(), batch.end());
  return lengths;
}

std::span<const family_info> families() { return make_families(); }

}  // namespace msabench
