// SPDX-License-Identifier: Apache-2.0
// Scaled operands: results are, bit by bit, those on tensors that hold the products of values and scales.
#include <gtest/gtest.h>

#include <cmath>

#include "batch.h"
#include "core/error.h"
#include "reference/dense.h"

namespace msabench::reference {
namespace {

using testing::batch;
using testing::batch_spec;
using testing::expect_same_bits;

constexpr score_error every_term{1e-3, 2e-4, 1e-5, 3e-5, 1e-6, 2e-6, 3e-6, 4e-6};

// A batch of e4m3 values with scales, and the same in float64 without.
struct scaled_batch {
  scaled_batch(page_layout layout, std::int32_t form) : stored(spec_of(layout)) {
    in = stored.inputs();
    in.p.kv_scale = form;
    k_scale = scales_of(in.k, form, 1), v_scale = scales_of(in.v, form, 2), q_scale = scales_of(in.q, 2, 3);
    in.k_scale = view_of(k_scale, in.k, form), in.v_scale = view_of(v_scale, in.v, form);
    in.q_scale = view_of(q_scale, in.q, 2);
    wide = stored.inputs();
    widen_into(wide.k, k_scale, k), widen_into(wide.v, v_scale, v), widen_into(wide.q, q_scale, q);
  }

  static batch_spec spec_of(page_layout layout) {
    batch_spec spec;
    spec.sequences = {{3, 3}, {1, 0}, {5, 149}, {2, 128}};
    spec.type = e4m3, spec.layout = layout, spec.page_order = 77;
    return spec;
  }

  static std::int64_t rows_of(const tensor_view& t) { return t.desc.elements() / t.desc.shape.back(); }

  // Each row of a tensor has one: neither powers of two nor short.
  static std::vector<float> scales_of(const tensor_view& t, std::int32_t form, std::uint64_t stream) {
    std::vector<float> all(form == 1 ? 1 : static_cast<std::size_t>(rows_of(t)));
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = static_cast<float>(std::exp(testing::hashed_normal(9, stream, i) / 3));
    return all;
  }
  static tensor_view view_of(const std::vector<float>& scales, const tensor_view& t, std::int32_t form) {
    auto shape = t.desc.shape;
    shape.pop_back();
    return {scales.data(), packed(fp32, form == 1 ? std::vector<std::int64_t>{1} : shape)};
  }
  static void widen_into(tensor_view& t, const std::vector<float>& scales, std::vector<double>& to) {
    const std::int64_t width = t.desc.shape.back();
    for (std::int64_t i = 0; i < t.desc.elements(); ++i)
      to.push_back(load(t.data, e4m3, i) *
                   double{scales[scales.size() == 1 ? 0 : static_cast<std::size_t>(i / width)]});
    t = {to.data(), packed(fp64, t.desc.shape)};
  }

  batch stored;
  attend_inputs in, wide;
  std::vector<float> k_scale, v_scale, q_scale;
  std::vector<double> k, v, q;
};

TEST(scales, multiply_stored_queries_keys_and_values) {
  for (const auto layout : {page_layout::contiguous, page_layout::paged})
    for (const std::int32_t form : {1, 2}) {
      const scaled_batch b(layout, form);
      const auto rows = b.stored.all_rows();
      expect_same_bits(attend(b.in, rows, every_term), attend(b.wide, rows, every_term));
      expect_same_bits({attend_head(b.in, 5, 3, every_term)}, {attend_head(b.wide, 5, 3, every_term)});
      const auto of = [](const attend_inputs& i) {
        return dense_inputs{i.p,           i.q,       i.k,       i.v,      i.cu_seqlens_q, i.kv_lens, i.cu_seqlens_kv,
                            i.block_table, i.q_scale, i.k_scale, i.v_scale};
      };
      expect_same_bits(dense(of(b.in), rows, every_term), dense(of(b.wide), rows, every_term));

      std::vector<double> got(16), want(16);
      value_of(b.in, 5, 1, 100, got), value_of(b.wide, 5, 1, 100, want);
      EXPECT_EQ(got, want);
      EXPECT_EQ(score_of(b.in, 5, 3, 100), score_of(b.wide, 5, 3, 100));
      EXPECT_NE(score_of(b.in, 5, 3, 100), score_of(b.stored.inputs(), 5, 3, 100));
    }
}

TEST(scales, of_shapes_that_contradict_the_problem_are_refused) {
  for (const auto slot : {&attend_inputs::q_scale, &attend_inputs::k_scale, &attend_inputs::v_scale}) {
    scaled_batch b(page_layout::paged, 2);
    (b.in.*slot).desc.shape[1] += 1;
    EXPECT_THROW(attend(b.in, b.stored.all_rows(), every_term), suite_error);
  }
}

}  // namespace
}  // namespace msabench::reference
