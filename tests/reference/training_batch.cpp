// SPDX-License-Identifier: Apache-2.0
#include "training_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "batch.h"
#include "reference/select.h"

namespace msabench::reference::testing {
namespace {

tensor_view view_of(const std::vector<std::int32_t>& x) {
  return {x.data(), packed(i32, {static_cast<std::int64_t>(x.size())})};
}

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

void fill(stored& x, std::uint64_t seed, std::uint64_t stream, double size, double offset) {
  const std::int64_t n = x.view().desc.elements();
  for (std::int64_t i = 0; i < n; ++i)
    x.set(i, offset + size * hashed_normal(seed, stream, static_cast<std::uint64_t>(i)));
}

}  // namespace

stored::stored(dtype stored_type, std::vector<std::int64_t> stored_shape)
    : type(stored_type), shape(std::move(stored_shape)) {
  bytes.resize(index(packed(type, shape).elements() * size_bytes(type)));
}

training_batch::training_batch(const training_spec& spec) : spec_(spec), cu_q_{0}, cu_kv_{0} {
  std::int64_t longest = 0;
  for (const auto& [q_len, kv_len] : spec_.sequences) {
    cu_q_.push_back(static_cast<std::int32_t>(cu_q_.back() + q_len));
    cu_kv_.push_back(static_cast<std::int32_t>(cu_kv_.back() + kv_len));
    kv_lens_.push_back(static_cast<std::int32_t>(kv_len));
    longest = std::max(longest, kv_len);
  }
  p.hq = spec_.hq, p.hkv = p.hi = spec_.hkv, p.d = spec_.d, p.di = spec_.di;
  p.block = spec_.block, p.topk = spec_.topk, p.local_blocks = spec_.local_blocks, p.init_blocks = spec_.init_blocks;
  p.batch = std::ssize(spec_.sequences), p.total_q = rows(), p.total_kv = keys(), p.max_kv_len = longest;
  p.q = p.kv = p.out = p.q_idx = p.k_idx = spec_.type;
  p.softmax_scale = spec_.softmax_scale, p.index_scale = spec_.index_scale;
  p.kl_coeff = spec_.coeff, p.kl_warm_up = spec_.warm_up ? 1 : 0;
  q = stored(spec_.type, {rows(), p.hq, p.d});
  d_out = stored(spec_.type, {rows(), p.hq, p.d});
  k = stored(spec_.type, {keys(), p.hkv, p.d});
  v = stored(spec_.type, {keys(), p.hkv, p.d});
  q_idx = stored(spec_.type, {rows(), p.hi, p.di});
  k_idx = stored(spec_.type, {keys(), p.di});
  fill(q, spec_.seed, 1, spec_.query_size, 0);
  fill(k, spec_.seed, 2, 1, 0);
  fill(v, spec_.seed, 3, 1, spec_.offset);
  fill(d_out, spec_.seed, 5, 1, 0);
  fill(q_idx, spec_.seed, 6, spec_.index_size, 0);
  fill(k_idx, spec_.seed, 7, 1, 0);
  ids_.resize(index(rows() * p.hkv * p.topk));
  const row_map map(view_of(cu_q_), view_of(kv_lens_));
  set_ids([&](std::int64_t row, std::int64_t group) {
    const std::int64_t visible = map.visible_blocks(row, p.block);
    std::vector<double> scores;
    for (std::int64_t b = 0; b < visible; ++b)
      scores.push_back(hashed_normal(spec_.seed, 4, static_cast<std::uint64_t>((row * 8 + group) * 4096 + b)));
    return select_row(scores, visible, p.topk, p.local_blocks, p.init_blocks);
  });
}

attend_backward_inputs training_batch::attend() const {
  problem of = p;
  of.operation = op::attend_backward;
  return {of, q.view(), k.view(), v.view(), kl().ids, d_out.view(), view_of(cu_q_), view_of(kv_lens_), view_of(cu_kv_)};
}
dense_backward_inputs training_batch::dense() const {
  problem of = p;
  of.operation = op::dense_backward;
  return {of, q.view(), k.view(), v.view(), d_out.view(), view_of(cu_q_), view_of(kv_lens_), view_of(cu_kv_)};
}
kl_inputs training_batch::kl() const {
  problem of = p;
  of.operation = op::kl;
  const tensor_view ids{ids_.data(), packed(i32, {rows(), p.hkv, p.topk})};
  return {of, q.view(), k.view(), q_idx.view(), k_idx.view(), ids, view_of(cu_q_), view_of(kv_lens_), view_of(cu_kv_)};
}

std::int32_t& training_batch::id(std::int64_t row, std::int64_t group, std::int64_t slot) {
  return ids_[index((row * p.hkv + group) * p.topk + slot)];
}

void training_batch::set_ids(const std::function<std::vector<std::int32_t>(std::int64_t, std::int64_t)>& ids) {
  for (std::int64_t row = 0; row < rows(); ++row)
    for (std::int64_t group = 0; group < p.hkv; ++group) {
      const auto chosen = ids(row, group);
      for (std::int64_t slot = 0; slot < p.topk; ++slot)
        id(row, group, slot) = slot < std::ssize(chosen) ? chosen[index(slot)] : -1;
    }
}

std::vector<std::int64_t> training_batch::read_keys(std::int64_t row, std::int64_t group, bool all) const {
  std::size_t b = 0;
  while (cu_q_[b + 1] <= row) ++b;
  const std::int64_t position = kv_lens_[b] - cu_q_[b + 1] + row;
  std::set<std::int64_t> blocks;
  for (std::int64_t slot = 0; slot < p.topk; ++slot) blocks.insert(ids_[index((row * p.hkv + group) * p.topk + slot)]);
  std::vector<std::int64_t> found;
  for (std::int64_t j = 0; j < kv_lens_[b] && j <= position; ++j)
    if (all || blocks.contains(j / p.block)) found.push_back(cu_kv_[b] + j);
  return found;
}

void expect_close(const gradient& got, const plain_gradient& want, double tolerance) {
  ASSERT_EQ(got.value.size(), want.value.size());
  const auto worst_of = [&](const std::vector<double>& a, const std::vector<real>& b, bool root, const char* what) {
    real worst = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const real x = root ? std::sqrt(real{a[i]}) : real{a[i]}, y = root ? std::sqrt(b[i]) : b[i];
      const real off = std::abs(x - y);
      // 0 where nothing may be lost; NaN counts as worst.
      const real ratio = off == 0 ? 0 : off / (want.size[i] + std::abs(y));
      if (!(ratio <= worst)) worst = ratio, at = i;
    }
    EXPECT_LE(worst, tolerance) << what << " element " << at;
  };
  worst_of(got.value, want.value, false, "value");
  worst_of(got.magnitude, want.magnitude, false, "magnitude");
  worst_of(got.error, want.error, false, "error");
  worst_of(got.fine_error, want.fine_error, false, "fine_error");
  worst_of(got.spread, want.spread, true, "spread");
}

void expect_same_bits(const gradient& got, const gradient& want) {
  const auto same = [](double a, double b) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
  };
  EXPECT_TRUE(std::ranges::equal(got.value, want.value, same));
  EXPECT_TRUE(std::ranges::equal(got.magnitude, want.magnitude, same));
  EXPECT_TRUE(std::ranges::equal(got.error, want.error, same));
  EXPECT_TRUE(std::ranges::equal(got.fine_error, want.fine_error, same));
  EXPECT_TRUE(std::ranges::equal(got.spread, want.spread, same));
  EXPECT_TRUE(std::ranges::equal(got.roundoff, want.roundoff, same));
  EXPECT_EQ(got.chain, want.chain);
}

void expect_derivative(const gradient& got, stored& x, const std::function<real()>& objective) {
  constexpr double step = 0x1p-14;
  ASSERT_EQ(std::ssize(got.value), x.view().desc.elements());
  double largest = 0, worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < got.value.size(); ++i) {
    const auto element = static_cast<std::int64_t>(i);
    const double old = x[element];
    x.set(element, old + step);
    const real above = objective();
    const double high = x[element];
    x.set(element, old - step);
    const real below = objective();
    const double low = x[element];
    x.set(element, old);
    const auto slope = static_cast<double>((above - below) / (real{high} - low));
    const double off = std::abs(slope - got.value[i]);
    largest = std::max(largest, std::abs(got.value[i]));
    if (!(off <= worst)) worst = off, at = i;
  }
  EXPECT_GT(largest, 0);
  EXPECT_LE(worst, 1e-6 * largest) << "element " << at << " of " << got.value.size();
}

}  // namespace msabench::reference::testing
