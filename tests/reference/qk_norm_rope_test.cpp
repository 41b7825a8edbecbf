// SPDX-License-Identifier: Apache-2.0
#include "reference/qk_norm_rope.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "batch.h"
#include "core/error.h"

namespace msabench::reference {
namespace {

using testing::hashed_normal;
using doubles = std::vector<double>;
using real = long double;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double eps = 1e-6;

struct prologue_spec {
  std::vector<std::pair<std::int64_t, std::int64_t>> sequences;  // q_b, N_b
  std::int32_t hq = 4, hkv = 2, hi = 2, d = 16, di = 24, rope_dims = 8;
  dtype type = fp32, table = fp32;
  std::int64_t max_pos = 400;
  double size = 1;  // factor of the inputs
};

// Values go with (label of the tensor, position, head, channel), so that chunks of a sequence hold the same ones.
class prologue {
 public:
  explicit prologue(const prologue_spec& s) : spec(s) {
    cu_ = {0};
    std::vector<std::int64_t> positions;
    for (const auto& [q_len, kv_len] : s.sequences) {
      cu_.push_back(cu_.back() + static_cast<std::int32_t>(q_len));
      lens_.push_back(static_cast<std::int32_t>(kv_len));
      for (std::int64_t i = 0; i < q_len; ++i) positions.push_back(kv_len - q_len + i);
    }
    const std::int64_t t = cu_.back();
    problem& p = in.p;
    p.operation = op::qk_norm_rope;
    p.hq = s.hq, p.hkv = s.hkv, p.hi = s.hi, p.d = s.d, p.di = s.di, p.rope_dims = s.rope_dims;
    p.norm_eps = eps, p.total_q = t, p.batch = std::ssize(lens_);
    in.cu_seqlens_q = {cu_.data(), packed(i32, {std::ssize(cu_)})};
    in.kv_lens = {lens_.data(), packed(i32, {std::ssize(lens_)})};
    in.q = tokens(0, {t, s.hq, s.d}, positions);
    in.k = tokens(1, {t, s.hkv, s.d}, positions);
    in.q_idx = tokens(2, {t, s.hi, s.di}, positions);
    in.k_idx = tokens(3, {t, s.di}, positions);
    in.q_norm = weights(4, s.d), in.k_norm = weights(5, s.d);
    in.q_idx_norm = weights(6, s.di), in.k_idx_norm = weights(7, s.di);
    in.cos_sin = angles();
  }
  prologue(const prologue&) = delete;
  prologue& operator=(const prologue&) = delete;

  std::vector<std::int64_t> all_rows() const {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(cu_.back()));
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
  }
  std::vector<qk_norm_rope_row> all() const { return qk_norm_rope(in, all_rows()); }
  void set(const tensor_view& tensor, std::int64_t element, double x) {
    store(const_cast<void*>(tensor.data), tensor.desc.type, element, x);
  }

  prologue_spec spec;
  qk_norm_rope_inputs in;

 private:
  tensor_view make(std::size_t label, dtype type, std::vector<std::int64_t> shape) {
    tensor_view view{nullptr, packed(type, std::move(shape))};
    memory_[label].resize(static_cast<std::size_t>(view.desc.elements() * size_bytes(type)));
    view.data = memory_[label].data();
    return view;
  }
  tensor_view tokens(std::size_t label, std::vector<std::int64_t> shape, const std::vector<std::int64_t>& positions) {
    const tensor_view view = make(label, spec.type, std::move(shape));
    const std::int64_t width = view.desc.strides[0];
    for (std::size_t row = 0; row < positions.size(); ++row)
      for (std::int64_t i = 0; i < width; ++i)
        set(view, static_cast<std::int64_t>(row) * width + i,
            spec.size * hashed_normal(6, 70 + label, static_cast<std::uint64_t>((positions[row] + 100) * 4096 + i)));
    return view;
  }
  tensor_view weights(std::size_t label, std::int64_t dim) {
    const tensor_view view = make(label, spec.type, {dim});
    for (std::int64_t c = 0; c < dim; ++c)
      set(view, c, hashed_normal(6, 70 + label, static_cast<std::uint64_t>(c)) / 4);
    return view;
  }
  tensor_view angles() {
    const tensor_view view = make(8, spec.table, {spec.max_pos, spec.rope_dims});
    const std::int64_t half = spec.rope_dims / 2;
    for (std::int64_t pos = 0; pos < spec.max_pos; ++pos)
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(pos) * std::pow(5e6, -2.0 * static_cast<double>(i) / spec.rope_dims);
        set(view, view.offset(pos, i), std::cos(angle));
        set(view, view.offset(pos, i + half), std::sin(angle));
      }
    return view;
  }

  std::vector<std::int32_t> cu_, lens_;
  std::vector<std::byte> memory_[9];
};

struct tensor_pair {
  const tensor_view &x, &w;
};
tensor_pair tensors_of(const qk_norm_rope_inputs& in, slot output) {
  if (output == slot::q_rope) return {in.q, in.q_norm};
  if (output == slot::k_rope) return {in.k, in.k_norm};
  if (output == slot::q_idx_rope) return {in.q_idx, in.q_idx_norm};
  return {in.k_idx, in.k_idx_norm};
}

// The contract's formula in long double: y[c] = n[c] cos -+ n[partner] sin with n = x rsqrt(mean(x^2) + eps) (1 + w).
void expect_plain(const prologue& b, const qk_norm_rope_row& got) {
  const auto [x, w] = tensors_of(b.in, got.output);
  const std::int64_t dim = x.desc.shape.back(), half = b.spec.rope_dims / 2;
  const auto value = [&](std::int64_t c) -> real {
    return x.desc.shape.size() == 3 ? x.at(got.row, got.head, c) : x.at(got.row, c);
  };
  real mean = 0;
  for (std::int64_t c = 0; c < dim; ++c) mean += value(c) * value(c) / static_cast<real>(dim);
  const auto normed = [&](std::int64_t c) { return value(c) / std::sqrt(mean + real{eps}) * (1 + real{w.at(c)}); };
  ASSERT_EQ(std::ssize(got.y), dim);
  ASSERT_EQ(std::ssize(got.a), dim);
  for (std::int64_t c = 0; c < dim; ++c) {
    real y = normed(c), a = std::abs(y);
    if (c < 2 * half) {
      const std::int64_t i = c % half;
      const real cosine = b.in.cos_sin.at(got.position, i), sine = b.in.cos_sin.at(got.position, i + half);
      y = c < half ? normed(i) * cosine - normed(i + half) * sine : normed(i + half) * cosine + normed(i) * sine;
      a = std::hypot(normed(i), normed(i + half)) * std::hypot(cosine, sine);
    }
    const double allowed = 1e-14 * static_cast<double>(a);
    EXPECT_NEAR(got.y[static_cast<std::size_t>(c)], static_cast<double>(y), allowed);
    EXPECT_NEAR(got.a[static_cast<std::size_t>(c)], static_cast<double>(a), allowed);
  }
}

void expect_same_bits(const std::vector<qk_norm_rope_row>& got, const std::vector<qk_norm_rope_row>& want) {
  ASSERT_EQ(got.size(), want.size());
  const auto same = [](const doubles& x, const doubles& y) {
    return std::ranges::equal(
        x, y, [](double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); });
  };
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(got[i].output == want[i].output && got[i].row == want[i].row && got[i].head == want[i].head &&
                got[i].position == want[i].position && same(got[i].y, want[i].y) && same(got[i].a, want[i].a))
        << want[i].row;
}

prologue_spec ragged() {
  prologue_spec spec;
  spec.sequences = {{0, 0}, {3, 3}, {1, 0}, {5, 149}, {0, 40}, {4, 2}, {1, 1}};
  return spec;
}

TEST(qk_norm_rope, results_and_amplitudes_are_those_of_the_plain_formulas) {
  for (const dtype type : {bf16, fp16, fp32, fp64}) {
    prologue_spec spec = ragged();
    spec.type = type, spec.table = type == fp64 ? fp64 : fp32;
    const prologue b(spec);
    const auto rows = b.all();
    ASSERT_EQ(rows.size(), 14u * (4 + 2 + 2 + 1));
    for (const auto& row : rows)
      if (row.position >= 0) expect_plain(b, row);
  }
}

TEST(qk_norm_rope, odd_shapes_follow_the_plain_formulas) {
  struct shape {
    std::int32_t hq, hkv, hi, d, di, rope_dims;
  };
  for (const shape& s : {shape{16, 1, 1, 128, 128, 64}, shape{1, 1, 1, 2, 2, 2}, shape{3, 3, 3, 64, 24, 24},
                         shape{6, 2, 2, 8, 300, 0}, shape{2, 1, 1, 6, 7, 4}}) {
    prologue_spec spec = ragged();
    std::tie(spec.hq, spec.hkv, spec.hi, spec.d, spec.di, spec.rope_dims) =
        std::tie(s.hq, s.hkv, s.hi, s.d, s.di, s.rope_dims);
    const prologue b(spec);
    for (const auto& row : b.all())
      if (row.position >= 0) expect_plain(b, row);
  }
}

TEST(qk_norm_rope, outputs_come_row_by_row_with_every_head) {
  prologue_spec spec;
  spec.sequences = {{2, 9}};
  const auto rows = prologue(spec).all();
  ASSERT_EQ(rows.size(), 18u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].row, static_cast<std::int64_t>(i / 9));
    EXPECT_EQ(rows[i].position, 7 + rows[i].row);
    const std::size_t at = i % 9;
    EXPECT_EQ(rows[i].output, at < 4   ? slot::q_rope
                              : at < 6 ? slot::k_rope
                              : at < 8 ? slot::q_idx_rope
                                       : slot::k_idx_rope);
    EXPECT_EQ(rows[i].head, static_cast<std::int64_t>(at < 4 ? at : at < 6 ? at - 4 : at < 8 ? at - 6 : 0));
  }
}

TEST(qk_norm_rope, norm_divides_by_the_root_mean_square_and_adds_one_to_the_weight) {
  doubles y(4);
  norm_rope(doubles{3, -3, 3, -3}, doubles{0, 1, -0.5, -1}, 0, {}, y);
  EXPECT_EQ(y, (doubles{1, -2, 0.5, 0}));
}

TEST(qk_norm_rope, eps_counts_where_inputs_are_small) {
  doubles y(2);
  norm_rope(doubles{1e-3, -1e-3}, doubles{0, -0.9}, 1e-6, {}, y);
  EXPECT_NEAR(y[0], std::sqrt(0.5), 1e-15);
  EXPECT_NEAR(y[1], -0.1 * std::sqrt(0.5), 1e-15);
  norm_rope(doubles{0, 0}, doubles{1, 1}, 1e-6, {}, y);
  EXPECT_EQ(y, (doubles{0, 0}));
  for (const double size : {1e-7, 1e-3, 1e3}) {
    prologue_spec spec = ragged();
    spec.size = size;
    const prologue b(spec);
    for (const auto& row : b.all())
      if (row.position >= 0) expect_plain(b, row);
  }
}

TEST(qk_norm_rope, pairs_are_half_split_and_turn_forward) {
  // rope_dims 4 of 6: pairs (0, 2) and (1, 3). Angles 90 and 180 degrees.
  doubles y(6);
  const double r = std::sqrt(91.0 / 6);
  norm_rope(doubles{1, 2, 3, 4, 5, 6}, doubles(6, 0.0), 0, doubles{0, -1, 1, 0}, y);
  const double want[] = {-3, -2, 1, -4, 5, 6};
  for (std::size_t c = 0; c < 6; ++c) EXPECT_NEAR(y[c] * r, want[c], 1e-14);
}

TEST(qk_norm_rope, dims_past_rope_dims_pass_through_with_their_own_size_as_amplitude) {
  prologue_spec spec;
  spec.sequences = {{1, 300}};
  const prologue b(spec);
  prologue_spec unrotated = spec;
  unrotated.rope_dims = 0;
  const auto rows = b.all(), plain = prologue(unrotated).all();
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t c = 0; c < rows[i].y.size(); ++c) {
      EXPECT_EQ(rows[i].y[c] == plain[i].y[c], c >= 8);
      EXPECT_EQ(rows[i].a[c], c < 8 ? rows[i].a[(c + 4) % 8] : std::abs(rows[i].y[c]));
      EXPECT_GE(rows[i].a[c], std::abs(rows[i].y[c]));
    }
}

// What rotary embedding is for: products of rotated queries and keys depend on the distance alone.
TEST(qk_norm_rope, products_depend_on_relative_positions) {
  const auto dot_at = [](std::int64_t query, std::int64_t key) {
    const auto rotated = [](std::uint64_t stream, std::int64_t position) {
      doubles x(32), y(32), cos_sin(32);
      for (std::size_t c = 0; c < 32; ++c) x[c] = hashed_normal(6, stream, c);
      for (std::size_t i = 0; i < 16; ++i) {
        const double angle = static_cast<double>(position) * std::pow(5e6, -static_cast<double>(i) / 16);
        cos_sin[i] = std::cos(angle), cos_sin[16 + i] = std::sin(angle);
      }
      norm_rope(x, doubles(32, 0.25), eps, cos_sin, y);
      return y;
    };
    const doubles q = rotated(81, query), k = rotated(82, key);
    return std::inner_product(q.begin(), q.end(), k.begin(), 0.0);
  };
  EXPECT_NEAR(dot_at(700, 640), dot_at(60, 0), 1e-12);
  EXPECT_GT(std::abs(dot_at(700, 640) - dot_at(700, 641)), 1e-3);
}

TEST(qk_norm_rope, positions_are_counted_from_the_start_of_the_sequence) {
  prologue_spec spec;
  spec.sequences = {{150, 150}};
  const auto want = prologue(spec).all();
  for (const std::int64_t chunk : {1, 37, 64}) {
    std::vector<qk_norm_rope_row> got;
    for (std::int64_t first = 0; first < 150; first += chunk) {
      const std::int64_t end = std::min<std::int64_t>(150, first + chunk);
      spec.sequences = {{end - first, end}};  // values go with positions
      for (auto& row : prologue(spec).all()) {
        row.row += first;
        got.push_back(std::move(row));
      }
    }
    expect_same_bits(got, want);
  }
}

TEST(qk_norm_rope, sequences_of_a_batch_do_not_see_each_other) {
  prologue_spec spec;
  spec.sequences = {{2, 90}, {3, 33}};
  const auto both = prologue(spec).all();
  spec.sequences = {{3, 33}};
  auto alone = prologue(spec).all();
  for (auto& row : alone) row.row += 2;
  expect_same_bits({both.begin() + 18, both.end()}, alone);
}

TEST(qk_norm_rope, padding_rows_have_a_position_below_zero_and_no_value) {
  prologue b(ragged());
  // Row 3 has N_b = 0, rows 9 and 10 stand before their sequence's first position. Whatever they hold is not read.
  for (const std::int64_t row : {3, 9, 10})
    for (std::int64_t c = 0; c < 16; ++c) b.set(b.in.q, b.in.q.offset(row, 0, c), nan);
  std::size_t padding = 0;
  for (const auto& row : b.all()) {
    const bool is_padding = row.row == 3 || row.row == 9 || row.row == 10;
    EXPECT_EQ(row.position < 0, is_padding);
    EXPECT_EQ(row.y.empty(), is_padding);
    EXPECT_EQ(row.a.empty(), is_padding);
    padding += is_padding ? 1 : 0;
    for (const double y : row.y) EXPECT_TRUE(std::isfinite(y));
  }
  EXPECT_EQ(padding, 3u * 9);
  EXPECT_TRUE(prologue({}).all().empty());
}

// In fp32, one term after the other: (d/2 + 8) roundings of the amplitude.
TEST(qk_norm_rope, results_computed_in_fp32_keep_the_bound) {
  prologue_spec spec;
  spec.sequences = {{6, 300}};
  spec.d = 128, spec.di = 64, spec.rope_dims = 64, spec.type = bf16;
  const prologue b(spec);
  const double u = std::exp2(-24);
  double most_used = 0;
  for (const auto& row : b.all()) {
    const auto [x, w] = tensors_of(b.in, row.output);
    const std::int64_t dim = x.desc.shape.back(), half = 32;
    const auto value = [&](std::int64_t c) {
      return static_cast<float>(x.desc.shape.size() == 3 ? x.at(row.row, row.head, c) : x.at(row.row, c));
    };
    float sum = 0;
    for (std::int64_t c = 0; c < dim; ++c) sum += value(c) * value(c);
    const float inverse = 1 / std::sqrt(sum / static_cast<float>(dim) + static_cast<float>(eps));
    const auto normed = [&](std::int64_t c) { return value(c) * inverse * (1 + static_cast<float>(w.at(c))); };
    for (std::int64_t c = 0; c < dim; ++c) {
      float y = normed(c);
      if (c < 2 * half) {
        const std::int64_t i = c % half;
        const auto cosine = static_cast<float>(b.in.cos_sin.at(row.position, i));
        const auto sine = static_cast<float>(b.in.cos_sin.at(row.position, i + half));
        y = c < half ? normed(i) * cosine - normed(i + half) * sine : normed(i + half) * cosine + normed(i) * sine;
      }
      const auto at = static_cast<std::size_t>(c);
      const double bound = u * std::abs(row.y[at]) + (static_cast<double>(dim) / 2 + 8) * u * row.a[at];
      EXPECT_LE(std::abs(y - row.y[at]), bound);
      most_used = std::max(most_used, std::abs(y - row.y[at]) / bound);
    }
  }
  EXPECT_GT(most_used, 1e-2);  // the limit is of the errors' kind, not of another order
}

TEST(qk_norm_rope, strided_views_are_followed) {
  const prologue b(ragged());
  auto in = b.in;
  std::vector<float> wide(14 * 4 * 32, std::numeric_limits<float>::quiet_NaN());
  for (std::int64_t row = 0; row < 14; ++row)
    for (std::int64_t h = 0; h < 4; ++h)
      for (std::int64_t c = 0; c < 16; ++c)
        wide[static_cast<std::size_t>((row * 4 + h) * 32 + c)] = static_cast<float>(b.in.q.at(row, h, c));
  in.q.data = wide.data();
  in.q.desc.strides = {128, 32, 1};
  expect_same_bits(qk_norm_rope(in, b.all_rows()), b.all());
}

TEST(qk_norm_rope, threads_and_repeats_change_no_bit) {
  prologue_spec spec;
  spec.sequences = {{200, 300}};
  spec.hq = 32, spec.d = 128, spec.di = 64, spec.rope_dims = 64, spec.type = bf16;
  const prologue b(spec);
  omp_set_num_threads(1);
  const auto one = b.all();
  for (const int threads : {1, 2, 3, 3}) {
    omp_set_num_threads(threads);
    expect_same_bits(b.all(), one);
  }
  omp_set_num_threads(omp_get_num_procs());
}

TEST(qk_norm_rope, contradicting_shapes_rows_and_positions_are_refused) {
  const prologue b(ragged());
  EXPECT_THROW(qk_norm_rope(b.in, std::vector<std::int64_t>{14}), suite_error);
  EXPECT_THROW(qk_norm_rope(b.in, std::vector<std::int64_t>{-1}), suite_error);
  const auto refused = [&](auto change) {
    auto in = b.in;
    change(in);
    EXPECT_THROW(qk_norm_rope(in, b.all_rows()), suite_error);
  };
  refused([](auto& in) { in.q.desc.shape[1] = 3; });
  refused([](auto& in) { in.k.desc.shape[2] = 24; });
  refused([](auto& in) { in.q_idx.desc.strides[2] = 2; });
  refused([](auto& in) { in.k_idx.desc.shape = {14, 1, 24}; });
  refused([](auto& in) { in.k_idx_norm.desc.shape[0] = 16; });
  refused([](auto& in) { in.cos_sin.desc.shape[1] = 16; });
  refused([](auto& in) { in.cos_sin.desc.shape[0] = 148; });  // the longest sequence ends at position 148
  refused([](auto& in) { in.cos_sin.desc.shape[1] = in.p.rope_dims = 7; });
  refused([](auto& in) { in.cos_sin.desc.shape[1] = in.p.rope_dims = 18; });
}

}  // namespace
}  // namespace msabench::reference
