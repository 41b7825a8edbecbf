// SPDX-License-Identifier: Apache-2.0
#include "index_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "batch.h"

namespace msabench::reference::testing {
namespace {

using real = long double;
constexpr double inf = std::numeric_limits<double>::infinity();
constexpr float unset = std::numeric_limits<float>::quiet_NaN();

tensor_view view(const void* data, dtype type, std::vector<std::int64_t> shape) {
  return {data, packed(type, std::move(shape))};
}

std::vector<std::byte> nans(std::int64_t count, dtype type) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * size_bytes(type)));
  for (std::int64_t i = 0; i < count; ++i) store(bytes.data(), type, i, std::numeric_limits<double>::quiet_NaN());
  return bytes;
}

// A number for a logical place; positions of padding rows are below 0.
std::uint64_t place_number(std::int64_t label, std::int64_t position, std::int64_t head, std::int64_t channel) {
  return static_cast<std::uint64_t>(((label << 22 | (position + (1 << 20))) * 64 + head) * 512 + channel);
}

}  // namespace

index_batch::index_batch(const index_spec& spec) : spec_(spec) {
  if (spec_.page_size == 0) spec_.page_size = spec_.block;
  if (spec_.labels.empty()) {
    spec_.labels.resize(spec_.sequences.size());
    std::iota(spec_.labels.begin(), spec_.labels.end(), 0);
  }
  cu_q_ = cu_kv_ = {0};
  for (const auto& [q_len, kv_len] : spec_.sequences) {
    total_rows_ += q_len;
    total_keys_ += kv_len;
    max_kv_len_ = std::max(max_kv_len_, kv_len);
    cu_q_.push_back(static_cast<std::int32_t>(total_rows_));
    cu_kv_.push_back(static_cast<std::int32_t>(total_keys_));
    kv_lens_.push_back(static_cast<std::int32_t>(kv_len));
  }
  problem& p = inputs_.p;
  p.operation = op::index;
  p.hkv = p.hi = spec_.hi, p.di = spec_.di, p.block = spec_.block, p.topk = spec_.topk;
  p.local_blocks = spec_.local_blocks, p.init_blocks = spec_.init_blocks;
  p.layout = spec_.layout;
  p.page_size = p.paged() ? spec_.page_size : 0;
  p.batch = static_cast<std::int64_t>(spec_.sequences.size());
  p.total_q = total_rows_, p.max_kv_len = max_kv_len_;
  p.q_idx = p.k_idx = spec_.type;
  p.index_scale = spec_.index_scale;
  p.idx_scale = spec_.scales;
  q_ = nans(total_rows_ * spec_.hi * spec_.di, spec_.type);
  inputs_.q_idx = view(q_.data(), spec_.type, {total_rows_, spec_.hi, spec_.di});
  inputs_.cu_seqlens_q = view(cu_q_.data(), i32, {p.batch + 1});
  inputs_.kv_lens = view(kv_lens_.data(), i32, {p.batch});
  std::int64_t slots = total_keys_;
  if (p.paged())
    slots = lay_out_pages();
  else
    inputs_.cu_seqlens_kv = view(cu_kv_.data(), i32, {p.batch + 1});
  k_ = nans(slots * spec_.di, spec_.type);
  inputs_.k_idx = p.paged() ? view(k_.data(), spec_.type, {slots / spec_.page_size, spec_.page_size, spec_.di})
                            : view(k_.data(), spec_.type, {slots, spec_.di});
  if (spec_.scales != 0) lay_out_scales(slots);
  fill();
}

// Pages in an order of their own, some that no table names; returns the number of slots.
std::int64_t index_batch::lay_out_pages() {
  const std::int64_t columns = (max_kv_len_ + spec_.page_size - 1) / spec_.page_size;
  table_.assign(spec_.sequences.size() * static_cast<std::size_t>(columns), 0x7fffffff);
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t b = 0; b < spec_.sequences.size(); ++b)
    for (std::int64_t page = 0; page * spec_.page_size < spec_.sequences[b].second; ++page)
      order.emplace_back(hashed_normal(spec_.page_order, 14, order.size()),
                         b * static_cast<std::size_t>(columns) + static_cast<std::size_t>(page));
  if (spec_.page_order != 0) std::ranges::sort(order);
  for (std::size_t i = 0; i < order.size(); ++i) table_[order[i].second] = static_cast<std::int32_t>(i + 2);
  inputs_.block_table_idx = view(table_.data(), i32, {std::ssize(spec_.sequences), columns});
  return (std::ssize(order) + 3) * spec_.page_size;
}

void index_batch::lay_out_scales(std::int64_t slots) {
  q_scale_.resize(static_cast<std::size_t>(total_rows_ * spec_.hi));
  inputs_.q_idx_scale = view(q_scale_.data(), fp32, {total_rows_, spec_.hi});
  if (spec_.scales == 1) {
    k_scale_ = {0.37f};
    inputs_.k_idx_scale = view(k_scale_.data(), fp32, {1});
    return;
  }
  k_scale_.assign(static_cast<std::size_t>(slots), unset);
  inputs_.k_idx_scale = inputs_.p.paged() ? view(k_scale_.data(), fp32, {slots / spec_.page_size, spec_.page_size})
                                          : view(k_scale_.data(), fp32, {slots});
}

void index_batch::fill() {
  for (std::int64_t row = 0; row < total_rows_; ++row) {
    const row_place at = place(row);
    const std::int64_t label = spec_.labels[static_cast<std::size_t>(at.sequence)];
    for (std::int64_t h = 0; h < spec_.hi; ++h) {
      for (std::int64_t c = 0; c < spec_.di; ++c)
        set_query(row, h, c, spec_.query_size * hashed_normal(spec_.seed, 11, place_number(label, at.position, h, c)));
      if (spec_.scales != 0)
        q_scale_[static_cast<std::size_t>(row * spec_.hi + h)] =
            static_cast<float>(std::exp2(hashed_normal(spec_.seed, 12, place_number(label, at.position, h, 0))));
    }
  }
  for (std::int64_t b = 0; b < std::ssize(spec_.sequences); ++b) {
    const std::int64_t label = spec_.labels[static_cast<std::size_t>(b)];
    for (std::int64_t j = 0; j < spec_.sequences[static_cast<std::size_t>(b)].second; ++j) {
      for (std::int64_t c = 0; c < spec_.di; ++c)
        set_key(b, j, c, hashed_normal(spec_.seed, 13, place_number(label, j, 0, c)));
      if (spec_.scales == 2)
        set_key_scale(b, j,
                      static_cast<float>(std::exp2(hashed_normal(spec_.seed, 15, place_number(label, j, 0, 0)) / 4)));
    }
  }
}

std::vector<std::int64_t> index_batch::all_rows() const {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(total_rows_));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

row_place index_batch::place(std::int64_t row) const { return place_of(inputs_.cu_seqlens_q, inputs_.kv_lens, row); }

std::int64_t index_batch::slot(std::int64_t sequence, std::int64_t position) const {
  if (!inputs_.p.paged()) return cu_kv_[static_cast<std::size_t>(sequence)] + position;
  const std::int64_t columns = inputs_.block_table_idx.desc.shape[1];
  const std::int64_t page = table_[static_cast<std::size_t>(sequence * columns + position / spec_.page_size)];
  return page * spec_.page_size + position % spec_.page_size;
}

double index_batch::query(std::int64_t row, std::int64_t head, std::int64_t channel) const {
  return load(q_.data(), spec_.type, (row * spec_.hi + head) * spec_.di + channel);
}
double index_batch::key(std::int64_t sequence, std::int64_t position, std::int64_t channel) const {
  return load(k_.data(), spec_.type, slot(sequence, position) * spec_.di + channel);
}
double index_batch::query_scale(std::int64_t row, std::int64_t head) const {
  return spec_.scales == 0 ? 1 : q_scale_[static_cast<std::size_t>(row * spec_.hi + head)];
}
double index_batch::key_scale(std::int64_t sequence, std::int64_t position) const {
  if (spec_.scales == 0) return 1;
  return k_scale_[spec_.scales == 1 ? 0 : static_cast<std::size_t>(slot(sequence, position))];
}
void index_batch::set_query(std::int64_t row, std::int64_t head, std::int64_t channel, double x) {
  store(q_.data(), spec_.type, (row * spec_.hi + head) * spec_.di + channel, x);
}
void index_batch::set_key(std::int64_t sequence, std::int64_t position, std::int64_t channel, double x) {
  store(k_.data(), spec_.type, slot(sequence, position) * spec_.di + channel, x);
}
void index_batch::set_key_scale(std::int64_t sequence, std::int64_t position, float scale) {
  k_scale_.at(static_cast<std::size_t>(slot(sequence, position))) = scale;
}

long double plain_index_key::delta(const interval_model& model) const {
  return real{model.per_magnitude} * magnitude + real{model.per_score} * std::abs(score);
}

std::vector<plain_index_key> plain_index_keys(const index_batch& b, std::int64_t row, std::int64_t head) {
  const auto& spec = b.spec();
  const row_place at = b.place(row);
  const double scale = spec.index_scale != 0 ? spec.index_scale : 1 / std::sqrt(static_cast<double>(spec.di));
  std::vector<plain_index_key> keys;
  for (std::int64_t j = 0; j < at.kv_len && j <= at.position; ++j) {
    plain_index_key key{j, j / spec.block, 0, 0};
    const real factor = real{scale} * b.query_scale(row, head) * b.key_scale(at.sequence, j);
    for (std::int64_t c = 0; c < spec.di; ++c) {
      const real product = real{b.query(row, head, c)} * b.key(at.sequence, j, c);
      key.score += factor * product;
      key.magnitude += std::abs(factor * product);
    }
    keys.push_back(key);
  }
  return keys;
}

score_row plain_score(const index_batch& b, std::int64_t row, std::int64_t head, const interval_model& model) {
  score_row r;
  r.row = row, r.head = head;
  const auto keys = plain_index_keys(b, row, head);
  const std::int64_t blocks = keys.empty() ? 0 : keys.back().block + 1;
  for (std::int64_t block = 0; block < blocks; ++block) {
    real value = -inf, lo = -inf, hi = -inf;
    std::int64_t best = -1;
    bool nan = false;
    for (const auto& key : keys) {
      if (key.block != block) continue;
      nan = nan || std::isnan(key.score);
      if (std::isnan(key.score)) continue;
      if (best < 0 || key.score > value) value = key.score, best = key.position;
      if (key.score == inf) lo = hi = inf;
      if (!std::isfinite(key.score)) continue;
      lo = std::max(lo, key.score - key.delta(model));
      hi = std::max(hi, key.score + key.delta(model));
    }
    if (real{model.unit} * hi > model.largest) hi = inf;
    if (real{model.unit} * lo < -model.largest || nan) lo = -inf;
    if (nan && model.propagate_nan) hi = -inf, value = std::numeric_limits<real>::quiet_NaN();
    r.value.push_back(static_cast<double>(value));
    r.lo.push_back(static_cast<double>(lo));
    r.hi.push_back(static_cast<double>(hi));
    r.key.push_back(best);
  }
  return r;
}

index_lse_row plain_lse(const index_batch& b, std::int64_t row, std::int64_t head, const std::vector<std::int32_t>& ids,
                        const score_error& err) {
  const std::set<std::int64_t> blocks(ids.begin(), ids.end());
  auto keys = plain_index_keys(b, row, head);
  std::erase_if(keys, [&](const auto& key) { return !blocks.contains(key.block); });
  index_lse_row r;
  r.row = row, r.head = head, r.n = std::ssize(keys), r.lse = -inf;
  if (keys.empty()) return r;
  real m = keys[0].score, sum = 0, eta_bar = 0;
  for (const auto& key : keys) m = std::max(m, key.score);
  for (const auto& key : keys) sum += std::exp(key.score - m);
  for (const auto& key : keys) {
    const real size = std::abs(key.score);
    const real theta = real{err.per_magnitude} * key.magnitude + real{err.per_score} * size + real{err.constant} +
                       real{err.per_size} * (std::abs(key.score - m) + std::abs(m));
    eta_bar += std::exp(key.score - m) / sum * std::expm1(theta);
  }
  r.m = static_cast<double>(m);
  r.lse = static_cast<double>(m + std::log(sum));
  r.eta_bar = static_cast<double>(eta_bar);
  return r;
}

namespace {

void expect_near(double got, double want, double tolerance, const char* what) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << what << ": " << got;
  } else if (std::isinf(want)) {
    EXPECT_EQ(got, want) << what;
  } else {
    EXPECT_NEAR(got, want, tolerance) << what;
  }
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(
      a, b, [](double x, double y) { return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y); });
}

}  // namespace

void expect_plain_scores(const index_batch& b, const score_row& got, const interval_model& model, double tolerance) {
  SCOPED_TRACE("row " + std::to_string(got.row) + ", head " + std::to_string(got.head));
  const auto want = plain_score(b, got.row, got.head, model);
  const auto keys = plain_index_keys(b, got.row, got.head);
  real size = 0;
  for (const auto& key : keys)
    if (std::isfinite(key.magnitude)) size = std::max(size, key.magnitude + key.delta(model));
  const double allowed = tolerance * static_cast<double>(size);
  ASSERT_EQ(got.value.size(), want.value.size());
  ASSERT_EQ(got.lo.size(), want.lo.size());
  ASSERT_EQ(got.hi.size(), want.hi.size());
  ASSERT_EQ(got.key.size(), want.key.size());
  for (std::size_t block = 0; block < want.value.size(); ++block) {
    expect_near(got.value[block], want.value[block], allowed, "value");
    expect_near(got.lo[block], want.lo[block], allowed, "lo");
    expect_near(got.hi[block], want.hi[block], allowed, "hi");
    if (std::isnan(want.value[block])) continue;
    ASSERT_EQ(got.key[block] < 0, want.key[block] < 0);
    if (got.key[block] < 0) continue;
    const auto& key = keys[static_cast<std::size_t>(got.key[block])];
    EXPECT_EQ(key.block, static_cast<std::int64_t>(block));
    expect_near(static_cast<double>(key.score), want.value[block], allowed, "score of the key");
  }
}

void expect_plain_lse(const index_batch& b, const index_lse_row& got, const std::vector<std::int32_t>& ids,
                      const score_error& err, double tolerance) {
  SCOPED_TRACE("row " + std::to_string(got.row) + ", head " + std::to_string(got.head));
  const auto want = plain_lse(b, got.row, got.head, ids, err);
  EXPECT_EQ(got.n, want.n);
  expect_near(got.m, want.m, tolerance * std::max(1.0, std::abs(want.m)), "m");
  expect_near(got.lse, want.lse, tolerance * std::max(1.0, std::abs(want.m)), "lse");
  expect_near(got.eta_bar, want.eta_bar, tolerance * std::max(1.0, want.eta_bar), "eta_bar");
}

void expect_same_bits(const std::vector<score_row>& got, const std::vector<score_row>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].row, want[i].row);
    EXPECT_EQ(got[i].head, want[i].head);
    EXPECT_TRUE(same_bits(got[i].value, want[i].value) && same_bits(got[i].lo, want[i].lo) &&
                same_bits(got[i].hi, want[i].hi) && got[i].key == want[i].key)
        << "row " << want[i].row << ", head " << want[i].head;
  }
}

void expect_same_bits(const std::vector<index_lse_row>& got, const std::vector<index_lse_row>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(got[i].row == want[i].row && got[i].head == want[i].head && got[i].n == want[i].n &&
                same_bits({got[i].m, got[i].lse, got[i].eta_bar}, {want[i].m, want[i].lse, want[i].eta_bar}))
        << "row " << want[i].row << ", head " << want[i].head;
}

void expect_same_bits(const std::vector<index_row>& got, const std::vector<index_row>& want) {
  ASSERT_EQ(got.size(), want.size());
  std::vector<score_row> got_scores, want_scores;
  std::vector<index_lse_row> got_lse, want_lse;
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].row, want[i].row);
    EXPECT_EQ(got[i].head, want[i].head);
    EXPECT_EQ(got[i].ids, want[i].ids) << "row " << want[i].row << ", head " << want[i].head;
    got_scores.push_back(got[i].scores), want_scores.push_back(want[i].scores);
    got_lse.push_back(got[i].lse), want_lse.push_back(want[i].lse);
  }
  expect_same_bits(got_scores, want_scores);
  expect_same_bits(got_lse, want_lse);
}

}  // namespace msabench::reference::testing
