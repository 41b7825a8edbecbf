// SPDX-License-Identifier: Apache-2.0
#include "reference/msa.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>

#include "batch.h"
#include "core/error.h"
#include "index_batch.h"
#include "reference/dense.h"
#include "reference/select.h"
#include "reordered.h"

namespace msabench::reference {
namespace {

using testing::batch;
using testing::batch_spec;
using testing::expect_close;
using testing::expect_same_bits;

constexpr double inf = std::numeric_limits<double>::infinity();

// Every term distinct and visible.
constexpr score_error every_term{1e-3, 2e-4, 1e-5, 3e-5, 1e-6, 2e-6, 3e-6, 4e-6};
constexpr score_error index_term{2e-3, 1e-4, 2e-5, 1e-5};
constexpr interval_model intervals{.per_magnitude = 1e-6, .per_score = 1e-6};

// A batch with an index branch, whose pages have an order of their own.
class msa_batch {
 public:
  explicit msa_batch(const batch_spec& spec) : main_(spec), index_(index_spec_of(spec)) {
    const attend_inputs& a = main_.inputs();
    const index_inputs& i = index_.inputs();
    in_ = {a.p,
           a.q,
           a.k,
           a.v,
           i.q_idx,
           i.k_idx,
           i.q_idx_scale,
           i.k_idx_scale,
           a.cu_seqlens_q,
           a.kv_lens,
           a.cu_seqlens_kv,
           a.block_table,
           i.block_table_idx};
    in_.p.operation = op::msa;
    in_.p.hi = i.p.hi, in_.p.di = i.p.di, in_.p.q_idx = i.p.q_idx, in_.p.k_idx = i.p.k_idx;
    in_.p.index_scale = i.p.index_scale, in_.p.idx_scale = i.p.idx_scale;
  }

  const msa_inputs& inputs() const { return in_; }
  batch& main() { return main_; }
  const batch& main() const { return main_; }
  std::vector<std::int64_t> all_rows() const { return main_.all_rows(); }

  // Ids of a row by the contract's formulas in long double.
  std::vector<std::int32_t> plain_ids(std::int64_t row, std::int64_t head) const {
    const auto scores = testing::plain_score(index_, row, head, {}).value;
    return select_row(scores, std::ssize(scores), in_.p.topk, in_.p.local_blocks, in_.p.init_blocks);
  }

 private:
  static testing::index_spec index_spec_of(const batch_spec& spec) {
    testing::index_spec result;
    result.sequences = spec.sequences;
    result.hi = spec.hkv, result.di = 12, result.block = spec.block, result.topk = spec.topk;
    result.local_blocks = spec.local_blocks, result.init_blocks = spec.init_blocks;
    result.type = spec.type, result.page_size = spec.page_size;
    result.layout = spec.layout == page_layout::contiguous ? spec.layout : page_layout::paged;
    result.page_order = spec.page_order == 0 ? 0 : spec.page_order + 1;
    result.seed = spec.seed + 1;
    return result;
  }

  batch main_;
  testing::index_batch index_;
  msa_inputs in_;
};

msa_rows msa_of(const msa_inputs& in, const std::vector<std::int64_t>& rows) {
  return msa(in, rows, intervals, index_term, every_term);
}
msa_rows msa_all(const msa_batch& b) { return msa_of(b.inputs(), b.all_rows()); }

void expect_same(const msa_rows& got, const msa_rows& want) {
  expect_same_bits(got.index, want.index);
  expect_same_bits(got.attend, want.attend);
}

void renumber(index_row& r, std::int64_t row, std::int64_t head) {
  r.row = r.scores.row = r.lse.row = row;
  r.head = r.scores.head = r.lse.head = head;
}

// Rows `order` of a result, their heads reversed if asked for; named as in the call that they are compared with.
msa_rows reordered(const msa_rows& from, const std::vector<std::int64_t>& order, const std::vector<std::int64_t>& names,
                   std::int64_t hq, std::int64_t hi, bool reverse_heads = false) {
  const auto at = [&](std::size_t i, std::int64_t heads, std::int64_t h) {
    return static_cast<std::size_t>(order[i] * heads + (reverse_heads ? heads - 1 - h : h));
  };
  msa_rows result;
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (std::int64_t h = 0; h < hi; ++h) {
      result.index.push_back(from.index[at(i, hi, h)]);
      renumber(result.index.back(), names[i], h);
    }
    for (std::int64_t h = 0; h < hq; ++h) result.attend.push_back(from.attend[at(i, hq, h)]);
  }
  return result;
}

batch_spec ragged() {
  batch_spec spec;
  spec.sequences = {{0, 0}, {3, 3}, {1, 0}, {5, 149}, {0, 40}, {2, 128}, {4, 2}, {1, 1}, {0, 0}};
  return spec;
}

void expect_plain(msa_batch& b) {
  const auto result = msa_all(b);
  ASSERT_EQ(std::ssize(result.index), b.main().rows() * b.inputs().p.hi);
  ASSERT_EQ(std::ssize(result.attend), b.main().rows() * b.inputs().p.hq);
  for (const auto& row : result.index) EXPECT_EQ(row.ids, b.plain_ids(row.row, row.head)) << row.row << " " << row.head;
  b.main().set_ids([&](auto row, auto group) { return b.plain_ids(row, group); });
  for (const auto& row : result.attend)
    expect_close(row, testing::plain_attend(b.main(), row.row, row.head, every_term), 1e-12);
}

struct storage_case {
  const char* name;
  dtype type;
  page_layout layout;
  std::int32_t page_size;
};
void PrintTo(const storage_case& c, std::ostream* out) { *out << c.name; }

class msa_storage : public ::testing::TestWithParam<storage_case> {};

TEST_P(msa_storage, ids_results_and_gauges_are_those_of_the_plain_formulas) {
  batch_spec spec = ragged();
  spec.type = GetParam().type;
  spec.layout = GetParam().layout;
  spec.page_size = GetParam().page_size;
  spec.page_order = 77;
  msa_batch b(spec);
  expect_plain(b);
}

INSTANTIATE_TEST_SUITE_P(, msa_storage,
                         ::testing::Values(storage_case{"bf16", bf16, page_layout::contiguous, 0},
                                           storage_case{"fp16", fp16, page_layout::contiguous, 0},
                                           storage_case{"fp64", fp64, page_layout::contiguous, 0},
                                           storage_case{"bf16_paged", bf16, page_layout::paged, 0},
                                           storage_case{"e4m3_paged", e4m3, page_layout::paged, 0},
                                           storage_case{"fp32_paged_page_is_not_block", fp32, page_layout::paged, 24},
                                           storage_case{"bf16_fused", bf16, page_layout::fused, 0}),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(msa, forced_block_settings_follow_the_plain_formulas) {
  for (const std::int32_t local : {0, 1, 3})
    for (const std::int32_t init : {0, 1, 2}) {
      batch_spec spec = ragged();
      spec.topk = 5, spec.local_blocks = local, spec.init_blocks = init;
      msa_batch b(spec);
      expect_plain(b);
    }
}

TEST(msa, is_index_and_then_attend_on_its_ids) {
  const msa_batch b(ragged());
  const auto rows = b.all_rows();
  const auto result = msa_all(b);
  std::vector<std::int32_t> ids;
  for (const auto& row : result.index) ids.insert(ids.end(), row.ids.begin(), row.ids.end());
  const tensor_view returned{ids.data(), packed(i32, {b.main().rows(), 2, 4})};
  expect_same({index(index_part(b.inputs()), rows, intervals, index_term),
               attend(attend_part(b.inputs(), returned), rows, every_term)},
              result);
}

TEST(msa, all_blocks_are_dense_attention) {
  batch_spec spec = ragged();
  spec.topk = 10;
  const msa_batch b(spec);
  const auto& in = b.inputs();
  const dense_inputs all{in.p, in.q, in.k, in.v, in.cu_seqlens_q, in.kv_lens, in.cu_seqlens_kv, in.block_table};
  expect_same_bits(msa_all(b).attend, dense(all, b.all_rows(), every_term));
}

TEST(msa, rows_with_no_more_blocks_than_topk_take_them_all) {
  const msa_batch b(ragged());
  std::int64_t seen = 0;
  for (const auto& row : msa_all(b).index) {
    const auto blocks = std::ssize(row.scores.value);
    if (blocks > 4) continue;
    ++seen;
    for (std::int64_t slot = 0; slot < 4; ++slot)
      EXPECT_EQ(row.ids[static_cast<std::size_t>(slot)], slot < blocks ? slot : -1);
  }
  EXPECT_EQ(seen, 2 * (3 + 1 + 4 + 1));
}

TEST(msa, empty_rows_select_nothing_and_are_zero) {
  const msa_batch b(ragged());
  const auto result = msa_all(b);
  const auto is_empty = [](std::int64_t row) { return row == 3 || row == 11 || row == 12; };
  for (const auto& row : result.index)
    if (is_empty(row.row)) {
      EXPECT_EQ(row.ids, std::vector<std::int32_t>(4, -1));
      EXPECT_EQ(row.lse.lse, -inf);
      EXPECT_TRUE(row.scores.value.empty());
    }
  for (const auto& row : result.attend) {
    EXPECT_EQ(row.n == 0, is_empty(row.row)) << row.row;
    if (row.n != 0) continue;
    EXPECT_EQ(row.lse, -inf);
    EXPECT_EQ(row.out, std::vector<double>(16, 0.0));
  }
}

TEST(msa, chunks_and_single_tokens_equal_one_shot) {
  batch_spec spec;
  spec.sequences = {{150, 150}};
  const msa_batch whole(spec);
  const auto want = msa_all(whole);
  for (const std::int32_t size : {1, 37, 64}) {
    msa_rows got;
    for (std::int32_t first = 0; first < 150; first += size) {
      const testing::chunk_of chunk(whole.inputs(), first, std::min(150, first + size));
      auto part = msa_of(chunk.inputs(), chunk.rows());
      for (auto& row : part.index) renumber(row, row.row + first, row.head);
      std::ranges::move(part.index, std::back_inserter(got.index));
      std::ranges::move(part.attend, std::back_inserter(got.attend));
    }
    expect_same(got, want);
  }
}

TEST(msa, page_permutation_changes_no_bit) {
  batch_spec spec = ragged();
  spec.type = bf16;
  const msa_batch contiguous(spec);
  for (const auto layout : {page_layout::paged, page_layout::fused})
    for (const std::uint64_t order : {0, 1, 2}) {
      spec.layout = layout;
      spec.page_order = order;
      expect_same(msa_all(msa_batch(spec)), msa_all(contiguous));
    }
}

TEST(msa, batch_order_changes_no_bit) {
  batch_spec spec = ragged();
  spec.layout = page_layout::paged;
  const msa_batch b(spec);
  const testing::reversed_sequences reversed(b.inputs());
  std::vector<std::int64_t> order;
  for (const std::int64_t row : b.all_rows()) order.push_back(reversed.old_row(row));
  expect_same(msa_of(reversed.inputs(), b.all_rows()), reordered(msa_all(b), order, b.all_rows(), 4, 2));
}

TEST(msa, group_permutation_changes_no_bit) {
  batch_spec spec = ragged();
  spec.hq = 6, spec.hkv = 3;
  const msa_batch b(spec);
  expect_same(msa_of(testing::with_reversed_groups(b.inputs()), b.all_rows()),
              reordered(msa_all(b), b.all_rows(), b.all_rows(), 6, 3, true));
}

TEST(msa, wanted_rows_come_in_the_order_asked_for) {
  const msa_batch b(ragged());
  const std::vector<std::int64_t> rows{7, 0, 7, 12};
  expect_same(msa_of(b.inputs(), rows), reordered(msa_all(b), rows, rows, 4, 2));
  EXPECT_TRUE(msa_of(b.inputs(), {}).attend.empty());
}

TEST(msa, threads_and_repeats_change_no_bit) {
  batch_spec spec = ragged();
  spec.d = 64, spec.hq = 16;
  spec.sequences.emplace_back(24, 2000);
  const msa_batch b(spec);
  omp_set_num_threads(1);
  const auto one = msa_all(b);
  for (const int threads : {1, 2, 3, 3}) {
    omp_set_num_threads(threads);
    expect_same(msa_all(b), one);
  }
  omp_set_num_threads(omp_get_num_procs());
}

TEST(msa, contradicting_shapes_and_rows_are_refused) {
  const msa_batch b(ragged());
  EXPECT_THROW(msa_of(b.inputs(), {16}), suite_error);
  EXPECT_THROW(msa_of(b.inputs(), {-1}), suite_error);
  const auto refused = [&](auto change) {
    auto in = b.inputs();
    change(in);
    EXPECT_THROW(msa_of(in, b.all_rows()), suite_error);
  };
  refused([](auto& in) { in.p.hi = 1; });
  refused([](auto& in) { in.p.topk = 0; });
  refused([](auto& in) { in.q.desc.shape[1] = 5; });
  refused([](auto& in) { in.v.desc.shape[2] = 8; });
  refused([](auto& in) { in.k_idx.desc.shape[1] = 8; });
}

}  // namespace
}  // namespace msabench::reference
