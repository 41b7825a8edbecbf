// SPDX-License-Identifier: Apache-2.0
// The closed forms of the work model against counting, over small random problems of every operator.
#include "core/work.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/selection_counts.h"
#include "core/units.h"
#include "core/work_executed.h"
#include "tests/core/work_brute.h"

namespace msabench {
namespace {

constexpr op text_operators[] = {op::qk_norm_rope,    op::score,          op::select, op::index,
                                 op::attend,          op::dense,          op::msa,    op::combine,
                                 op::attend_backward, op::dense_backward, op::kl};

class dice {
 public:
  explicit dice(unsigned seed) : rng_(seed) {}
  std::int32_t operator()(std::int32_t low, std::int32_t high) {
    return std::uniform_int_distribution<std::int32_t>(low, high)(rng_);
  }
  std::mt19937& rng() { return rng_; }

 private:
  std::mt19937 rng_;
};

// Ragged: prefill, chunks, decode, padding rows, sequences without query tokens or without keys.
std::vector<sequence> make_batch(dice& d) {
  std::vector<sequence> batch;
  for (int n = d(0, 4); n > 0; --n) {
    const std::int64_t kv = d(0, 45);
    switch (d(0, 4)) {
      case 0:
        batch.push_back({kv, kv});
        break;
      case 1:
        batch.push_back({1, kv});
        break;
      case 2:
        batch.push_back({0, kv});
        break;
      case 3:
        batch.push_back({d(0, 12), d(0, 6)});
        break;
      default:
        batch.push_back({kv > 0 ? d(1, static_cast<std::int32_t>(kv)) : 0, kv});
    }
  }
  return batch;
}

problem make_small_problem(dice& d, op operation) {
  constexpr dtype types[] = {bf16, fp16, fp32, e4m3};
  problem p;
  p.operation = operation;
  p.hkv = p.hi = d(1, 3);
  p.hq = p.hkv * d(1, 3);
  p.d = 2 * d(1, 5);
  p.di = d(1, 7);
  p.block = d(1, 7);
  p.topk = d(1, 5);
  p.local_blocks = d(0, p.topk);
  p.init_blocks = d(0, p.topk - p.local_blocks);
  p.rope_dims = 2 * d(0, 1);
  p.splits = d(0, 3);
  p.kl_warm_up = d(0, 1);
  const bool training = operation == op::attend_backward || operation == op::dense_backward || operation == op::kl;
  p.q = types[d(0, training ? 2 : 3)];
  p.kv = types[d(0, training ? 2 : 3)];
  p.q_idx = p.k_idx = types[d(0, training ? 2 : 3)];
  p.out = types[d(0, 2)];
  p.partial = types[d(0, 2)];
  p.grad = types[d(0, 2)];
  p.kv_scale = !training && p.kv == e4m3 ? d(1, 2) : 0;
  p.idx_scale = !training && p.k_idx == e4m3 ? d(1, 2) : 0;
  return p;
}

std::vector<slot> some_outputs(dice& d) {
  std::vector<slot> chosen;
  for (const slot s : {slot::lse, slot::ids, slot::scores, slot::lse_idx, slot::dq, slot::dk, slot::positions,
                       slot::q_rope, slot::k_rope})
    if (d(0, 1) == 1) chosen.push_back(s);
  return chosen;
}

std::string describe(const problem& p, const std::vector<sequence>& batch) {
  std::string text = fmt::format("{} h{}x{} d{} di{} b{} k{} l{} i{}", name(p.operation), p.hq, p.hkv, p.d, p.di,
                                 p.block, p.topk, p.local_blocks, p.init_blocks);
  for (const auto& s : batch) text += fmt::format(" {}/{}", s.q_len, s.kv_len);
  return text;
}

selection_counts counts_of(const brute::setting& s, std::int64_t tile_tokens = 1) {
  return count_selection(s.ids, s.batch, s.p.hkv, s.p.block, s.p.topk, tile_tokens);
}

TEST(work, EveryTextOperatorAsCounted) {
  dice d(1);
  for (int i = 0; i < 60; ++i)
    for (const op operation : text_operators) {
      brute::setting s{make_small_problem(d, operation), make_batch(d), {}, some_outputs(d)};
      s.ids = brute::make_ids(s.p, s.batch, brute::habit::random, false, d.rng());
      SCOPED_TRACE(describe(s.p, s.batch));
      const brute::counted want = brute::count(s);
      const work known = work_of(s.p, s.batch, {counts_of(s), s.outputs});
      EXPECT_EQ(known.useful_flops, static_cast<double>(want.flops));
      EXPECT_EQ(known.compulsory_bytes.least, static_cast<double>(want.compulsory));
      EXPECT_EQ(known.compulsory_bytes.most, static_cast<double>(want.compulsory));
      EXPECT_EQ(known.algorithmic_bytes, static_cast<double>(want.algorithmic));
      EXPECT_EQ(known.ranked_scores, static_cast<double>(want.ranked));

      const work bounded = work_of(s.p, s.batch, {{}, s.outputs});
      EXPECT_LE(bounded.compulsory_bytes.least, static_cast<double>(want.compulsory));
      EXPECT_GE(bounded.compulsory_bytes.most, static_cast<double>(want.compulsory));
      if (s.p.local_blocks >= 1) {
        EXPECT_EQ(bounded.useful_flops, static_cast<double>(want.flops));
        EXPECT_EQ(bounded.algorithmic_bytes, static_cast<double>(want.algorithmic));
      } else {
        EXPECT_LE(bounded.useful_flops, static_cast<double>(want.flops));
      }
      if (HasFailure()) return;
    }
}

TEST(work, LeastLeavesOutScoresThatCannotMatter) {
  dice d(2);
  for (int i = 0; i < 100; ++i)
    for (const op operation : {op::select, op::index, op::msa}) {
      brute::setting s{make_small_problem(d, operation), make_batch(d), {}, {}};
      if (d(0, 1) == 1) s.outputs = {slot::lse, slot::ids};
      if (s.p.idx_scale == 1) s.p.idx_scale = 2;  // one scale per tensor is left out of the least bytes
      s.ids = brute::make_ids(s.p, s.batch, brute::habit::random, false, d.rng());
      SCOPED_TRACE(describe(s.p, s.batch));
      const brute::counted want = brute::count_least(s);
      const work got = work_of(s.p, s.batch, {counts_of(s), s.outputs});
      EXPECT_EQ(got.least_flops, static_cast<double>(want.flops));
      EXPECT_EQ(got.least_bytes, static_cast<double>(want.compulsory));
      EXPECT_LE(got.least_flops, got.useful_flops);
      EXPECT_LE(got.least_bytes, got.compulsory_bytes.least);
      if (HasFailure()) return;
    }
}

TEST(work, ScoresThatAreAskedForAreNotLeftOut) {
  dice d(3);
  problem p = make_small_problem(d, op::msa);
  const std::vector<sequence> batch{{3, 5}};
  p.block = 4;
  p.topk = 2;
  p.local_blocks = 1;
  p.init_blocks = 0;
  EXPECT_LT(work_of(p, batch).least_flops, work_of(p, batch).useful_flops);
  EXPECT_EQ(work_of(p, batch, {{}, {slot::scores}}).least_flops, work_of(p, batch).useful_flops);
  p.operation = op::index;
  EXPECT_EQ(work_of(p, batch).least_flops, 0);
  EXPECT_EQ(work_of(p, batch, {{}, {slot::lse_idx}}).least_flops, work_of(p, batch).useful_flops);
}

TEST(work, BoundsOfDistinctKeysAreReached) {
  dice d(4);
  for (int i = 0; i < 400; ++i) {
    brute::setting s{make_small_problem(d, op::attend), make_batch(d), {}, {}};
    SCOPED_TRACE(describe(s.p, s.batch));
    const selection_rule rule{s.p.block, s.p.topk, s.p.local_blocks, s.p.init_blocks};
    const count_bounds one_head = distinct_selected_keys(s.batch, rule);
    const count_bounds all_heads = distinct_selected_keys(s.batch, rule, s.p.hi);
    for (const bool share : {false, true}) {
      s.ids = brute::make_ids(s.p, s.batch, brute::habit::new_keys, share, d.rng());
      const auto most = counts_of(s);
      if (share) {
        EXPECT_EQ(static_cast<double>(most.distinct_index_keys), all_heads.most);
      } else {
        EXPECT_EQ(static_cast<double>(most.distinct_keys), one_head.most * s.p.hkv);
      }
      // Sharing best is one of two habits: low blocks, or what costs the fewest new keys.
      s.ids = brute::make_ids(s.p, s.batch, brute::habit::same_keys, share, d.rng());
      const auto least = counts_of(s);
      EXPECT_GE(static_cast<double>(least.distinct_keys), one_head.least * s.p.hkv);
      EXPECT_GE(static_cast<double>(least.distinct_index_keys), all_heads.least);
      if (s.p.local_blocks >= 1) {
        EXPECT_EQ(static_cast<double>(least.distinct_index_keys), all_heads.least);
      }
    }
    if (HasFailure()) return;
  }
}

TEST(work, VisionAsCounted) {
  dice d(5);
  for (int i = 0; i < 60; ++i)
    for (const op operation : {op::rope3d, op::vit_attend, op::vit3d}) {
      brute::vision_setting s{make_small_problem(d, operation), {}, some_outputs(d)};
      s.p.hq = s.p.hkv = d(1, 2);
      s.p.d = d(3, 20);
      s.p.vit_window = d(0, 4);
      s.p.q = s.p.q == e4m3 ? bf16 : s.p.q;
      for (int n = d(0, 3); n > 0; --n) s.items.push_back({d(1, 6), 2 * d(1, 2), 2});
      SCOPED_TRACE(fmt::format("{} d{} window {} {} items", name(operation), s.p.d, s.p.vit_window, s.items.size()));
      const brute::counted want = brute::count(s);
      const work got = work_of_vision(s.p, s.items, {{}, s.outputs});
      EXPECT_EQ(got.useful_flops, static_cast<double>(want.flops));
      EXPECT_EQ(got.compulsory_bytes.least, static_cast<double>(want.compulsory));
      EXPECT_EQ(got.compulsory_bytes.most, static_cast<double>(want.compulsory));
      EXPECT_EQ(got.algorithmic_bytes, static_cast<double>(want.algorithmic));
      if (HasFailure()) return;
    }
}

TEST(work, DecodeMovesNothingTwice) {
  dice d(6);
  for (int i = 0; i < 100; ++i)
    for (const op operation : {op::score, op::attend, op::dense}) {
      const problem p = make_small_problem(d, operation);
      const std::vector<sequence> batch{{1, d(1, 60)}, {1, d(1, 60)}};
      const work w = work_of(p, batch);
      EXPECT_TRUE(w.compulsory_bytes.exact() || p.local_blocks == 0) << describe(p, batch);
      // Scales per tensor are read once in all.
      if (p.kv_scale != 1 && p.idx_scale != 1) {
        EXPECT_EQ(w.algorithmic_bytes, w.compulsory_bytes.least) << describe(p, batch);
      }
    }
}

TEST(work, NothingToDoIsNoWork) {
  dice d(7);
  for (const op operation : text_operators) {
    const problem p = make_small_problem(d, operation);
    for (const auto& batch : {std::vector<sequence>{}, {{0, 0}}, {{0, 9}}}) {
      const work w = work_of(p, batch);
      EXPECT_EQ(w.useful_flops, 0) << name(operation);
      // Gradients of keys are written even where nothing reads them; so is the loss.
      const bool gradients = operation == op::attend_backward || operation == op::dense_backward || operation == op::kl;
      if (!gradients) {
        EXPECT_EQ(w.compulsory_bytes.most, 0) << name(operation);
      }
    }
  }
}

TEST(work, LargestCallsStayFinite) {
  dice d(8);
  for (const op operation : text_operators) {
    problem p = make_small_problem(d, operation);
    p.hq = p.hkv = p.hi = p.d = p.di = 1 << 16;
    p.block = 16;
    p.topk = 1 << 20;
    const std::vector<sequence> batch(1000, {max_size, max_size});
    const work w = work_of(p, batch);
    for (const double x : {w.useful_flops, w.compulsory_bytes.least, w.compulsory_bytes.most, w.algorithmic_bytes,
                           w.least_flops, w.least_bytes}) {
      EXPECT_TRUE(std::isfinite(x)) << name(operation);
      EXPECT_GE(x, 0) << name(operation);
    }
  }
}

TEST(work, FaultyCallsAreTheSuitesFault) {
  dice d(9);
  problem p = make_small_problem(d, op::attend);
  const auto fails = [](const problem& q, const std::vector<sequence>& batch) {
    EXPECT_THROW(work_of(q, batch), suite_error);
  };
  fails(p, {{-1, 3}});
  fails(p, {{1, max_size + 1}});
  p.block = 0;
  fails(p, {{1, 3}});
  p.block = 4;
  p.d = 0;
  fails(p, {{1, 3}});
  p.d = 4;
  p.kv = tf32;
  fails(p, {{1, 3}});
  p.operation = op::vit_attend;
  fails(p, {{1, 3}});
  p.operation = op::attend;
  EXPECT_THROW(work_of_vision(p, std::vector<grid>{{1, 2, 2}}), suite_error);
  p.operation = op::rope3d;
  EXPECT_THROW(work_of_vision(p, std::vector<grid>{{0, 2, 2}}), suite_error);
  EXPECT_THROW(flops_per_pair(p), suite_error);
  EXPECT_THROW(count_selection(std::vector<std::int32_t>(5), std::vector<sequence>{{1, 3}}, 1, 2, 4), suite_error);
}

TEST(selection_counts, ReadsIdsLeniently) {
  // One row at position 9 of blocks of 4: own block 2 with two keys. Out of order, twice, past own and negative.
  const std::vector<std::int32_t> ids{2, 0, 0, 3, -7, 2};
  const std::vector<sequence> batch{{1, 10}};
  const auto c = count_selection(ids, batch, 1, 4, 6);
  EXPECT_EQ(c.selected_pairs, 6);
  EXPECT_EQ(c.distinct_keys, 6);
  EXPECT_EQ(c.distinct_index_keys, 6);
  EXPECT_EQ(c.tile_blocks, 2);
}

// Executed FLOPs, tile by tile.
double counted_tiles(const brute::setting& s, const tile_shape& tile) {
  const problem& p = s.p;
  const bool index = p.operation == op::score || p.operation == op::index;
  const bool all = index || p.operation == op::dense || p.operation == op::dense_backward ||
                   (p.operation == op::kl && p.kl_warm_up != 0);
  const std::int64_t heads = index ? p.hi : p.hq / p.hkv;
  const std::int64_t rows = tile.rows != 0 ? tile.rows : tile.tokens * heads;
  double flops = 0;
  std::int64_t first_row = 0;
  for (const auto& q : s.batch) {
    for (std::int64_t first = 0; first < q.q_len; first += tile.tokens)
      for (std::int64_t r = 0; r < (index ? 1 : p.hkv); ++r) {
        std::int64_t keys = 0;
        std::set<std::int64_t> blocks;
        for (std::int64_t i = first; i < std::min(q.q_len, first + tile.tokens); ++i) {
          const std::int64_t pos = q.kv_len - q.q_len + i;
          while (all && keys <= pos) keys += tile.keys;
          if (!all)
            for (const auto j : s.selected(first_row + i, r, pos)) blocks.insert(j / p.block);
        }
        for (std::size_t b = 0; b < blocks.size(); ++b)
          for (std::int64_t done = 0; done < p.block; done += tile.keys) keys += tile.keys;
        const double products = p.operation == op::attend_backward || p.operation == op::dense_backward ? 5
                                : p.operation == op::attend || p.operation == op::dense                 ? 2
                                                                                                        : 1;
        flops += products * 2.0 * (index ? p.di : p.d) * static_cast<double>(rows * keys);
        if (p.operation == op::kl) flops += 3 * 2.0 * p.di * static_cast<double>(tile.tokens * keys);
      }
    first_row += q.q_len;
  }
  return flops;
}

TEST(executed, TilesAsCounted) {
  dice d(10);
  for (int i = 0; i < 100; ++i)
    for (const op operation :
         {op::score, op::index, op::attend, op::dense, op::attend_backward, op::dense_backward, op::kl}) {
      brute::setting s{make_small_problem(d, operation), make_batch(d), {}, {}};
      s.ids = brute::make_ids(s.p, s.batch, brute::habit::random, false, d.rng());
      tile_shape tile{d(1, 5), 0, d(1, 9)};
      const std::int64_t heads = operation == op::score || operation == op::index ? s.p.hi : s.p.group();
      if (d(0, 1) == 1) tile.rows = tile.tokens * heads + d(0, 8);
      SCOPED_TRACE(describe(s.p, s.batch));
      const double want = counted_tiles(s, tile);
      const auto known = counts_of(s, tile.tokens);
      EXPECT_DOUBLE_EQ(executed_flops(s.p, s.batch, tile, known.tile_blocks), want);
      EXPECT_GE(want, work_of(s.p, s.batch, {known, {}}).useful_flops * (1 - 1e-12));
      if (tile.tokens == 1) {
        EXPECT_DOUBLE_EQ(executed_flops(s.p, s.batch, tile), want);
      }
      if (HasFailure()) return;
    }
}

TEST(executed, TheSmallestTileOfDenseIsUseful) {
  dice d(11);
  const problem p = make_small_problem(d, op::dense);
  const std::vector<sequence> batch{{5, 9}, {7, 7}};
  EXPECT_DOUBLE_EQ(executed_flops(p, batch, {}), work_of(p, batch).useful_flops);
}

TEST(executed, VisionTiles) {
  problem p;
  p.operation = op::vit_attend;
  p.hq = 2;
  p.d = 8;
  p.vit_window = 4;
  // Segments of 8 and 4 patches; in tiles of 3 x 5: 3 tiles of 4 rows over 10 keys, 2 over 5.
  const std::vector<grid> items{{6, 1, 2}};
  EXPECT_EQ(executed_flops_vision(p, items, {3, 4, 5}), 4.0 * 8 * 2 * (3 * 4 * 10 + 2 * 4 * 5));
  EXPECT_EQ(executed_flops_vision(p, items, {}), 4.0 * 8 * 2 * (64 + 16));
}

TEST(executed, Refused) {
  dice d(12);
  problem p = make_small_problem(d, op::attend);
  const std::vector<sequence> batch{{4, 9}};
  EXPECT_THROW(executed_flops(p, batch, {2, 0, 1}), suite_error);  // unions are not known
  EXPECT_THROW(executed_flops(p, batch, {0, 0, 1}), suite_error);
  EXPECT_THROW(executed_flops(p, batch, {1, 0, 0}), suite_error);
  p.hq = 2 * p.hkv;
  EXPECT_THROW(executed_flops(p, batch, {1, 1, 1}), suite_error);  // fewer rows than heads
  p.operation = op::msa;
  EXPECT_THROW(executed_flops(p, batch, {}), suite_error);
}

}  // namespace
}  // namespace msabench
