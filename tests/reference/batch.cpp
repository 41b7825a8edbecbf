// SPDX-License-Identifier: Apache-2.0
#include "batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <span>
#include <string>

#include "reference/select.h"

namespace msabench::reference::testing {
namespace {

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

tensor_view view(const void* data, dtype type, std::vector<std::int64_t> shape) {
  return {data, packed(type, std::move(shape))};
}

std::vector<std::byte> nans(std::int64_t count, dtype type) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * size_bytes(type)));
  for (std::int64_t i = 0; i < count; ++i) store(bytes.data(), type, i, std::numeric_limits<double>::quiet_NaN());
  return bytes;
}

}  // namespace

double hashed_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const std::uint64_t word = mix(mix(mix(seed) ^ stream) ^ index);
  double sum = -510;
  for (int byte = 0; byte < 4; ++byte) sum += static_cast<double>(word >> (8 * byte) & 0xff);
  return sum / 128;
}

batch::batch(const batch_spec& spec) : spec_(spec) {
  if (spec_.page_size == 0) spec_.page_size = spec_.block;
  cu_q_ = {0};
  cu_kv_ = {0};
  for (const auto& [q_len, kv_len] : spec_.sequences) {
    total_rows_ += q_len;
    total_keys_ += kv_len;
    max_kv_len_ = std::max(max_kv_len_, kv_len);
    cu_q_.push_back(static_cast<std::int32_t>(total_rows_));
    cu_kv_.push_back(static_cast<std::int32_t>(total_keys_));
    kv_lens_.push_back(static_cast<std::int32_t>(kv_len));
  }
  problem& p = inputs_.p;
  p.hq = spec_.hq, p.hkv = spec_.hkv, p.d = spec_.d, p.block = spec_.block, p.topk = spec_.topk;
  p.local_blocks = spec_.local_blocks, p.init_blocks = spec_.init_blocks;
  p.layout = spec_.layout;
  p.page_size = spec_.layout == page_layout::contiguous ? 0 : spec_.page_size;
  p.batch = static_cast<std::int64_t>(spec_.sequences.size());
  p.total_q = total_rows_, p.max_kv_len = max_kv_len_;
  p.q = p.kv = p.out = spec_.type;
  p.softmax_scale = spec_.softmax_scale;
  q_ = nans(total_rows_ * spec_.hq * spec_.d, spec_.type);
  inputs_.q = view(q_.data(), spec_.type, {total_rows_, spec_.hq, spec_.d});
  inputs_.cu_seqlens_q = view(cu_q_.data(), i32, {p.batch + 1});
  inputs_.kv_lens = view(kv_lens_.data(), i32, {p.batch});
  lay_out_cache();
  fill();
  ids_.resize(static_cast<std::size_t>(total_rows_ * spec_.hkv * spec_.topk));
  inputs_.ids = view(ids_.data(), i32, {total_rows_, spec_.hkv, spec_.topk});
  const row_map map(inputs_.cu_seqlens_q, inputs_.kv_lens);
  set_ids([&](std::int64_t row, std::int64_t group) {
    const std::int64_t visible = map.visible_blocks(row, spec_.block);
    std::vector<double> scores;
    for (std::int64_t b = 0; b < visible; ++b)
      scores.push_back(hashed_normal(spec_.seed, 4, static_cast<std::uint64_t>((row * 8 + group) * 4096 + b)));
    return select_row(scores, visible, spec_.topk, spec_.local_blocks, spec_.init_blocks);
  });
}

void batch::lay_out_cache() {
  if (spec_.layout == page_layout::contiguous) {
    kv_ = nans(total_keys_ * spec_.hkv * spec_.d, spec_.type);
    v_ = kv_;
    inputs_.k = view(kv_.data(), spec_.type, {total_keys_, spec_.hkv, spec_.d});
    inputs_.v = view(v_.data(), spec_.type, {total_keys_, spec_.hkv, spec_.d});
    inputs_.cu_seqlens_kv = view(cu_kv_.data(), i32, {static_cast<std::int64_t>(cu_kv_.size())});
    return;
  }
  const std::int64_t columns = (max_kv_len_ + spec_.page_size - 1) / spec_.page_size;
  pages_ = 3;  // some that no table names
  table_.assign(spec_.sequences.size() * static_cast<std::size_t>(columns), 0x7fffffff);
  std::vector<std::pair<std::uint64_t, std::size_t>> order;
  for (std::size_t b = 0; b < spec_.sequences.size(); ++b)
    for (std::int64_t page = 0; page * spec_.page_size < spec_.sequences[b].second; ++page, ++pages_)
      order.emplace_back(mix(spec_.page_order ^ static_cast<std::uint64_t>(pages_)),
                         b * static_cast<std::size_t>(columns) + static_cast<std::size_t>(page));
  if (spec_.page_order != 0) std::ranges::sort(order);
  for (std::size_t i = 0; i < order.size(); ++i) table_[order[i].second] = static_cast<std::int32_t>(i + 2);

  inputs_.block_table = view(table_.data(), i32, {static_cast<std::int64_t>(spec_.sequences.size()), columns});
  const bool fused = spec_.layout == page_layout::fused;
  const std::int64_t line = fused ? 2 * spec_.d : spec_.d;
  kv_ = nans(pages_ * spec_.hkv * spec_.page_size * line, spec_.type);
  if (!fused) v_ = kv_;
  tensor_view whole = view(kv_.data(), spec_.type, {pages_, spec_.hkv, spec_.page_size, line});
  whole.desc.shape[3] = spec_.d;
  inputs_.k = inputs_.v = whole;
  inputs_.v.data = fused ? kv_.data() + spec_.d * size_bytes(spec_.type) : v_.data();
}

void batch::fill() {
  for (std::int64_t i = 0; i < total_rows_ * spec_.hq * spec_.d; ++i)
    store(q_.data(), spec_.type, i, spec_.query_size * hashed_normal(spec_.seed, 1, static_cast<std::uint64_t>(i)));
  std::uint64_t i = 0;
  for (std::size_t b = 0; b < spec_.sequences.size(); ++b)
    for (std::int64_t j = 0; j < spec_.sequences[b].second; ++j)
      for (std::int64_t r = 0; r < spec_.hkv; ++r)
        for (std::int64_t c = 0; c < spec_.d; ++c, ++i) {
          const auto sequence = static_cast<std::int64_t>(b);
          store(kv_.data(), spec_.type, place(sequence, j, r, c), hashed_normal(spec_.seed, 2, i));
          set_value(sequence, j, r, c, spec_.offset + hashed_normal(spec_.seed, 3, i));
        }
}

std::int64_t batch::place(std::int64_t sequence, std::int64_t position, std::int64_t head, std::int64_t channel) const {
  if (spec_.layout == page_layout::contiguous)
    return ((cu_kv_[static_cast<std::size_t>(sequence)] + position) * spec_.hkv + head) * spec_.d + channel;
  const std::int64_t columns = inputs_.block_table.desc.shape[1];
  const std::int64_t page = table_[static_cast<std::size_t>(sequence * columns + position / spec_.page_size)];
  const std::int64_t line = spec_.layout == page_layout::fused ? 2 * spec_.d : spec_.d;
  return ((page * spec_.hkv + head) * spec_.page_size + position % spec_.page_size) * line + channel;
}

std::vector<std::int64_t> batch::all_rows() const {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(total_rows_));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int64_t>(i);
  return rows;
}

double batch::scale() const {
  return spec_.softmax_scale != 0 ? spec_.softmax_scale : 1 / std::sqrt(static_cast<double>(spec_.d));
}

double batch::query(std::int64_t row, std::int64_t head, std::int64_t channel) const {
  return load(q_.data(), spec_.type, (row * spec_.hq + head) * spec_.d + channel);
}
double batch::key(std::int64_t sequence, std::int64_t position, std::int64_t head, std::int64_t channel) const {
  return load(kv_.data(), spec_.type, place(sequence, position, head, channel));
}
double batch::value(std::int64_t sequence, std::int64_t position, std::int64_t head, std::int64_t channel) const {
  return load(inputs_.v.data, spec_.type, place(sequence, position, head, channel));
}
void batch::set_value(std::int64_t sequence, std::int64_t position, std::int64_t head, std::int64_t channel, double x) {
  store(const_cast<void*>(inputs_.v.data), spec_.type, place(sequence, position, head, channel), x);
}
void batch::set_query(std::int64_t row, std::int64_t head, std::int64_t channel, double x) {
  store(q_.data(), spec_.type, (row * spec_.hq + head) * spec_.d + channel, x);
}

std::int32_t& batch::id(std::int64_t row, std::int64_t group, std::int64_t slot) {
  return ids_[static_cast<std::size_t>((row * spec_.hkv + group) * spec_.topk + slot)];
}

void batch::set_ids(const std::function<std::vector<std::int32_t>(std::int64_t, std::int64_t)>& ids) {
  for (std::int64_t row = 0; row < total_rows_; ++row)
    for (std::int64_t group = 0; group < spec_.hkv; ++group) {
      const auto chosen = ids(row, group);
      for (std::int64_t slot = 0; slot < spec_.topk; ++slot)
        id(row, group, slot) = slot < std::ssize(chosen) ? chosen[static_cast<std::size_t>(slot)] : -1;
    }
}

namespace {

using real = long double;

struct plain_key {
  std::int64_t position = 0;
  real score = 0, magnitude = 0, squares = 0;  // s_j, G_j, scale^2 sum (q k)^2
  real weight = 0, eta = 0, e = 0;
};

std::vector<plain_key> plain_keys(const batch& b, const row_place& at, std::int64_t row, std::int64_t head) {
  const auto& spec = b.spec();
  const std::int64_t group = head / (spec.hq / spec.hkv);
  const tensor_view& ids = b.inputs().ids;
  std::set<std::int64_t> blocks;
  for (std::int64_t slot = 0; slot < ids.desc.shape[2]; ++slot) blocks.insert(ids.int_at(row, group, slot));
  std::vector<plain_key> keys;
  for (std::int64_t j = 0; j < at.kv_len && j <= at.position; ++j) {
    if (!blocks.contains(j / spec.block)) continue;
    plain_key key;
    key.position = j;
    for (std::int64_t c = 0; c < spec.d; ++c) {
      const real product = real{b.query(row, head, c)} * b.key(at.sequence, j, group, c);
      key.score += b.scale() * product;
      key.magnitude += b.scale() * std::abs(product);
      key.squares += product * product * b.scale() * b.scale();
    }
    keys.push_back(key);
  }
  return keys;
}

void plain_gauges(const batch& b, std::int64_t sequence, std::int64_t group, const std::vector<plain_key>& keys,
                  attend_row& r) {
  for (std::int64_t c = 0; c < b.spec().d; ++c) {
    real o = 0, a = 0, dev = 0, q2 = 0, e1 = 0, e2 = 0, x = 0;
    for (const auto& key : keys) o += key.weight * b.value(sequence, key.position, group, c);
    for (const auto& key : keys) {
      const real v = b.value(sequence, key.position, group, c), u = std::abs(v - o);
      a += key.weight * std::abs(v);
      dev += key.weight * u;
      q2 += key.weight * key.weight * v * v;
      e1 += key.weight * key.eta * u;
      e2 += key.weight * key.weight * key.e * key.e * u * u;
      x += std::max(std::abs(v), u);
    }
    const auto put = [](std::vector<double>& to, real value) { to.push_back(static_cast<double>(value)); };
    put(r.out, o), put(r.a, a), put(r.dev, dev), put(r.q2, q2), put(r.e1, e1), put(r.e2, e2), put(r.x, x);
  }
}

}  // namespace

plain_row plain_attend(const batch& b, std::int64_t row, std::int64_t head, const score_error& err) {
  const row_place at = place_of(b.inputs().cu_seqlens_q, b.inputs().kv_lens, row);
  auto keys = plain_keys(b, at, row, head);
  plain_row r;
  r.row = row, r.head = head, r.n = std::ssize(keys);
  if (keys.empty()) {
    r.lse = -std::numeric_limits<double>::infinity();
    for (auto* channels : {&r.out, &r.a, &r.dev, &r.q2, &r.e1, &r.e2, &r.x})
      channels->assign(static_cast<std::size_t>(b.spec().d), 0.0);
    return r;
  }
  real m = keys[0].score, sum = 0, squares = 0, eta_bar = 0, e_squares = 0;
  for (const auto& key : keys) m = std::max(m, key.score);
  for (const auto& key : keys) sum += std::exp(key.score - m);
  for (auto& key : keys) {
    const real size = std::abs(key.score);
    key.weight = std::exp(key.score - m) / sum;
    key.eta = std::expm1(err.per_magnitude * key.magnitude + err.per_score * size + err.constant +
                         err.per_size * (std::abs(key.score - m) + std::abs(m)));
    key.e = std::sqrt(err.var_score * size * size + err.var_products * key.squares + err.var_constant +
                      err.var_size * size * size);
    eta_bar += key.weight * key.eta;
    squares += key.weight * key.weight;
    e_squares += key.weight * key.weight * key.e * key.e;
  }
  r.m = static_cast<double>(m);
  r.lse = static_cast<double>(m + std::log(sum));
  r.eta_bar = static_cast<double>(eta_bar);
  r.n_eff = static_cast<double>(1 / squares);
  r.e_size = static_cast<double>(std::sqrt(e_squares));
  plain_gauges(b, at.sequence, head / (b.spec().hq / b.spec().hkv), keys, r);
  return r;
}

void expect_close(const attend_row& got, const plain_row& want, double tolerance) {
  const std::string where = "row " + std::to_string(want.row) + " head " + std::to_string(want.head);
  EXPECT_EQ(got.row, want.row);
  EXPECT_EQ(got.head, want.head);
  ASSERT_EQ(got.n, want.n) << where;
  const auto close = [&](double a, double b, double size, const char* what) {
    // Written so that NaN fails; equal infinities pass.
    EXPECT_TRUE(a == b || std::abs(a - b) <= tolerance * size) << where << " " << what << ": " << a << " for " << b;
  };
  close(got.m, want.m, 1 + std::abs(want.m), "m");
  close(got.lse, want.lse, 1 + std::abs(want.lse), "lse");
  close(got.eta_bar, want.eta_bar, want.eta_bar, "eta_bar");
  close(got.n_eff, want.n_eff, want.n_eff, "n_eff");
  const auto channels = [&](std::span<const double> a, std::span<const double> b, const char* what, double of_values) {
    ASSERT_EQ(a.size(), b.size()) << where << " " << what;
    for (std::size_t c = 0; c < b.size(); ++c) close(a[c], b[c], std::abs(b[c]) + of_values * want.a[c], what);
  };
  const auto roots = [](std::vector<double> values) {
    for (double& x : values) x = std::sqrt(x);
    return values;
  };
  // Sums of both signs, and deviations |v - o|, are as exact as the values that cancel in them.
  channels(got.out, want.out, "out", 1);
  channels(got.a, want.a, "A", 0);
  channels(got.dev, want.dev, "D", 1);
  channels(got.q2, want.q2, "Q", 0);
  channels(got.e1, want.e1, "e1", want.eta_bar);
  channels(roots(got.e2), roots(want.e2), "sqrt e2", want.e_size);
  channels(got.x, want.x, "x", 0);
}

void expect_same_bits(const std::vector<attend_row>& got, const std::vector<attend_row>& want) {
  ASSERT_EQ(got.size(), want.size());
  const auto same = [](double a, double b) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
  };
  for (std::size_t i = 0; i < got.size(); ++i) {
    const attend_row &a = got[i], &b = want[i];
    EXPECT_EQ(a.n, b.n) << i;
    EXPECT_TRUE(same(a.m, b.m) && same(a.lse, b.lse) && same(a.eta_bar, b.eta_bar) && same(a.n_eff, b.n_eff)) << i;
    const auto channels = [&](const std::vector<double>& x, const std::vector<double>& y) {
      return std::ranges::equal(x, y, same);
    };
    EXPECT_TRUE(channels(a.out, b.out) && channels(a.a, b.a) && channels(a.dev, b.dev) && channels(a.q2, b.q2) &&
                channels(a.e1, b.e1) && channels(a.e2, b.e2) && channels(a.x, b.x))
        << "row " << a.row << " head " << a.head;
  }
}

}  // namespace msabench::reference::testing
