// SPDX-License-Identifier: Apache-2.0
#include "reference/layer.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "batch.h"
#include "core/error.h"
#include "reference/projection.h"

namespace msabench::reference {
namespace {

using real = long double;
using row = std::vector<real>;
using rows = std::vector<row>;

struct layer_spec {
  std::vector<std::int64_t> prompts{40};
  std::int32_t hidden = 24, hq = 4, hkv = 2, d = 16, di = 8, block = 8, topk = 3, local = 1, init = 0, rot = 6;
  double theta = 5e6, eps = 1e-6, hidden_size = 1;
};

class layer_problem {
 public:
  explicit layer_problem(const layer_spec& s) : spec(s) {
    for (const std::int64_t n : spec.prompts) cu.push_back(cu.back() + static_cast<std::int32_t>(n));
    const std::int64_t t = cu.back();
    problem& p = in.p;
    p.hq = s.hq, p.hkv = p.hi = s.hkv, p.d = s.d, p.di = s.di, p.block = s.block, p.topk = s.topk;
    p.local_blocks = s.local, p.init_blocks = s.init, p.rope_dims = s.rot, p.rope_theta = s.theta, p.norm_eps = s.eps;
    in.hidden = make({t, s.hidden}, s.hidden_size);
    in.cu_seqlens = {cu.data(), packed(i32, {std::ssize(cu)})};
    const double size = 1 / std::sqrt(static_cast<double>(s.hidden));
    auto& w = in.weights;
    w.q = make({s.hq * s.d, s.hidden}, size), w.k = make({s.hkv * s.d, s.hidden}, size);
    w.v = make({s.hkv * s.d, s.hidden}, size), w.out = make({s.hidden, s.hq * s.d}, 0.1);
    w.q_idx = make({s.hkv * s.di, s.hidden}, size), w.k_idx = make({s.di, s.hidden}, size);
    w.q_norm = make({s.d}, 0.3), w.k_norm = make({s.d}, 0.3);
    w.q_idx_norm = make({s.di}, 0.3), w.k_idx_norm = make({s.di}, 0.3);
  }
  layer_problem(const layer_problem&) = delete;
  layer_problem& operator=(const layer_problem&) = delete;

  layer_spec spec;
  layer_inputs in;
  std::vector<std::int32_t> cu{0};

 private:
  tensor_view make(std::vector<std::int64_t> shape, double size) {
    auto& values = memory_.emplace_back(std::make_unique<std::vector<double>>());
    tensor_view made{nullptr, packed(fp64, std::move(shape))};
    for (std::int64_t i = 0; i < made.desc.elements(); ++i)
      values->push_back(size * testing::hashed_normal(7, memory_.size(), static_cast<std::uint64_t>(i)));
    made.data = values->data();
    return made;
  }
  std::vector<std::unique_ptr<std::vector<double>>> memory_;
};

// The contract's formulas one after the other, one prompt at a time.
class plain_layer {
 public:
  explicit plain_layer(const layer_problem& of) : s_(of.spec), w_(of.in.weights) {
    for (std::size_t b = 0; b + 1 < of.cu.size(); ++b) {
      rows hidden;
      for (std::int64_t i = of.cu[b]; i < of.cu[b + 1]; ++i) {
        hidden.emplace_back();
        for (std::int64_t c = 0; c < s_.hidden; ++c) hidden.back().push_back(of.in.hidden.at(i, c));
      }
      run(hidden);
    }
  }
  std::vector<std::int32_t> ids;
  rows output;

 private:
  static rows times(const rows& x, const tensor_view& w) {
    rows y;
    for (const row& from : x) {
      y.emplace_back();
      for (std::int64_t o = 0; o < w.desc.shape[0]; ++o) {
        real sum = 0;
        for (std::size_t c = 0; c < from.size(); ++c) sum += from[c] * w.at(o, c);
        y.back().push_back(sum);
      }
    }
    return y;
  }
  // Norm and rotation of each head of `dim` elements.
  rows prepared(rows x, std::size_t dim, const tensor_view& norm) const {
    for (std::size_t position = 0; position < x.size(); ++position)
      for (std::size_t head = 0; head < x[position].size(); head += dim) {
        real* const y = x[position].data() + head;
        real squares = 0;
        for (std::size_t c = 0; c < dim; ++c) squares += y[c] * y[c];
        for (std::size_t c = 0; c < dim; ++c)
          y[c] = y[c] / std::sqrt(squares / static_cast<real>(dim) + s_.eps) * (1 + static_cast<real>(norm.at(c)));
        const auto half = static_cast<std::size_t>(s_.rot / 2);
        for (std::size_t i = 0; i < half; ++i) {
          const real angle = static_cast<real>(position) *
                             std::pow(static_cast<real>(s_.theta), -2.0L * static_cast<real>(i) / s_.rot);
          const real a = y[i], b = y[i + half];
          y[i] = a * std::cos(angle) - b * std::sin(angle);
          y[i + half] = b * std::cos(angle) + a * std::sin(angle);
        }
      }
    return x;
  }
  static real product(const row& a, std::size_t at, const row& b, std::size_t bt, std::size_t dim) {
    real sum = 0;
    for (std::size_t c = 0; c < dim; ++c) sum += a[at + c] * b[bt + c];
    return sum;
  }
  // Blocks of one token and head, by counting who is better.
  std::vector<std::int32_t> chosen(const rows& q, const rows& k, std::size_t i, std::size_t r) const {
    const auto own = static_cast<std::int32_t>(i) / s_.block;
    std::vector<real> best(static_cast<std::size_t>(own) + 1, -INFINITY);
    for (std::size_t j = 0; j <= i; ++j) {
      real& b = best[j / static_cast<std::size_t>(s_.block)];
      b = std::max(b, product(q[i], r * static_cast<std::size_t>(s_.di), k[j], 0, static_cast<std::size_t>(s_.di)));
    }
    for (std::int32_t b = 0; b <= own; ++b)
      if (b < s_.init || b > own - s_.local) best[static_cast<std::size_t>(b)] = INFINITY;
    std::vector<std::int32_t> blocks;
    for (std::int32_t b = 0; b <= own; ++b) {
      const auto better = std::ranges::count_if(best, [&](real x) { return x > best[static_cast<std::size_t>(b)]; });
      if (better < s_.topk) blocks.push_back(b);
    }
    return blocks;
  }
  void run(const rows& hidden) {
    const auto d = static_cast<std::size_t>(s_.d), di = static_cast<std::size_t>(s_.di);
    const rows q = prepared(times(hidden, w_.q), d, w_.q_norm), k = prepared(times(hidden, w_.k), d, w_.k_norm);
    const rows q_idx = prepared(times(hidden, w_.q_idx), di, w_.q_idx_norm);
    const rows k_idx = prepared(times(hidden, w_.k_idx), di, w_.k_idx_norm), v = times(hidden, w_.v);
    rows attended;
    for (std::size_t i = 0; i < hidden.size(); ++i) {
      attended.emplace_back();
      for (std::size_t r = 0; r < static_cast<std::size_t>(s_.hkv); ++r) {
        auto blocks = chosen(q_idx, k_idx, i, r);
        for (std::int32_t g = 0; g < s_.hq / s_.hkv; ++g) {
          const std::size_t head = r * static_cast<std::size_t>(s_.hq / s_.hkv) + static_cast<std::size_t>(g);
          real sum = 0;
          row o(d, 0.0L);
          for (std::size_t j = 0; j <= i; ++j) {
            if (std::ranges::find(blocks, static_cast<std::int32_t>(j) / s_.block) == blocks.end()) continue;
            const real weight = std::exp(product(q[i], head * d, k[j], r * d, d) / std::sqrt(static_cast<real>(s_.d)));
            sum += weight;
            for (std::size_t c = 0; c < d; ++c) o[c] += weight * v[j][r * d + c];
          }
          for (const real x : o) attended.back().push_back(x / sum);
        }
        blocks.resize(static_cast<std::size_t>(s_.topk), -1);
        ids.insert(ids.end(), blocks.begin(), blocks.end());
      }
    }
    for (auto& y : times(attended, w_.out)) output.push_back(std::move(y));
  }

  layer_spec s_;
  layer_weights w_;
};

void expect_plain(const layer_spec& spec) {
  const layer_problem of(spec);
  const auto got = layer(of.in);
  const plain_layer want(of);
  EXPECT_EQ(got.ids, want.ids);
  ASSERT_EQ(got.output.size(), want.output.size() * static_cast<std::size_t>(spec.hidden));
  real largest = 0;
  for (const row& y : want.output)
    for (const real x : y) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < got.output.size(); ++i) {
    const real x = want.output[i / static_cast<std::size_t>(spec.hidden)][i % static_cast<std::size_t>(spec.hidden)];
    EXPECT_NEAR(got.output[i], static_cast<double>(x), 1e-13 * static_cast<double>(largest)) << i;
  }
}

TEST(layer, a_prompt_follows_the_plain_formulas) { expect_plain({}); }

TEST(layer, other_shapes_follow_the_plain_formulas) {
  expect_plain({.hidden = 7, .hq = 1, .hkv = 1, .d = 6, .di = 5, .rot = 4});
  expect_plain({.hq = 6, .hkv = 3, .d = 9, .di = 12, .block = 5, .topk = 4, .local = 2, .init = 1, .rot = 8});
  expect_plain({.hq = 3, .hkv = 3, .d = 8, .di = 8, .topk = 2, .local = 0, .rot = 8});
  expect_plain({.hidden = 200, .hq = 2, .hkv = 1, .d = 130, .di = 8, .rot = 2});
  expect_plain({.rot = 0, .theta = 1e4, .eps = 0.5, .hidden_size = 0.01});
}

TEST(layer, fewer_tokens_than_a_block) {
  expect_plain({.prompts = {5}, .block = 128, .topk = 2});
  expect_plain({.prompts = {1}, .block = 16, .topk = 4, .local = 1, .init = 2});
  const layer_problem of({.prompts = {5}, .block = 128, .topk = 2});
  const auto ids = layer(of.in).ids;
  for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i], i % 2 == 0 ? 0 : -1);
}

TEST(layer, all_blocks_are_selected_where_topk_allows) { expect_plain({.topk = 9}); }

TEST(layer, ragged_batches_follow_the_plain_formulas) { expect_plain({.prompts = {3, 0, 33, 1, 17}}); }

TEST(layer, a_batch_equals_its_prompts_alone) {
  const layer_problem both({.prompts = {21, 30}});
  const auto whole = layer(both.in);
  auto in = both.in;
  in.hidden.desc.shape[0] = 21;
  in.cu_seqlens = {};
  const auto first = layer(in);
  EXPECT_TRUE(std::equal(first.output.begin(), first.output.end(), whole.output.begin()));
  EXPECT_TRUE(std::equal(first.ids.begin(), first.ids.end(), whole.ids.begin()));
  in.hidden.data = static_cast<const double*>(in.hidden.data) + 21 * 24;
  in.hidden.desc.shape[0] = 30;
  const auto second = layer(in);
  EXPECT_TRUE(std::equal(second.output.begin(), second.output.end(), whole.output.begin() + 21 * 24));
}

TEST(layer, without_lengths_there_is_one_prompt) {
  const layer_problem of({});
  auto in = of.in;
  in.cu_seqlens = {};
  EXPECT_EQ(layer(in).output, layer(of.in).output);
}

TEST(layer, no_tokens_give_nothing) {
  const layer_problem of({.prompts = {0, 0}});
  EXPECT_TRUE(layer(of.in).output.empty());
  const layer_problem none({.prompts = {}});
  EXPECT_TRUE(layer(none.in).ids.empty());
}

TEST(layer, threads_and_repeats_change_no_bit) {
  const layer_problem of({.prompts = {150, 33}, .hidden = 300, .d = 32});
  omp_set_num_threads(1);
  const auto one = layer(of.in);
  for (const int threads : {2, 3, 3}) {
    omp_set_num_threads(threads);
    const auto again = layer(of.in);
    EXPECT_EQ(again.ids, one.ids);
    EXPECT_EQ(again.output, one.output);
  }
  omp_set_num_threads(omp_get_num_procs());
}

TEST(layer, contradicting_shapes_are_refused) {
  const layer_problem of({});
  const auto refused = [&](auto change) {
    auto in = of.in;
    change(in);
    EXPECT_THROW(layer(in), suite_error);
  };
  refused([](auto& in) { in.hidden.desc.shape = {40, 23}; });
  refused([](auto& in) { in.weights.q.desc.shape[0] = 60; });
  refused([](auto& in) { in.weights.out.desc.shape = {64, 24}; });
  refused([](auto& in) { in.weights.k_idx.desc.shape[0] = 16; });
  refused([](auto& in) { in.weights.q_norm.desc.shape[0] = 8; });
  refused([](auto& in) { in.p.hi = 4; });
  refused([](auto& in) { in.p.rope_dims = 5; });
  refused([](auto& in) { in.p.rope_dims = 10; });
  refused([](auto& in) { in.p.topk = 0; });
  refused([](auto& in) { in.hidden.desc.shape[0] = 39; });
}

TEST(projection, follows_the_plain_sum_over_many_tiles) {
  constexpr std::int64_t tokens = 131, inputs = 700, outputs = 139;
  std::vector<double> x, w;
  for (std::uint64_t i = 0; i < tokens * inputs; ++i) x.push_back(testing::hashed_normal(1, 1, i));
  for (std::uint64_t i = 0; i < outputs * inputs; ++i) w.push_back(testing::hashed_normal(1, 2, i));
  const auto y = project({x.data(), packed(fp64, {tokens, inputs})}, {w.data(), packed(fp64, {outputs, inputs})});
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t o = 0; o < outputs; ++o) {
      real sum = 0, size = 0;
      for (std::size_t c = 0; c < inputs; ++c) {
        const real term = static_cast<real>(x[t * inputs + c]) * w[o * inputs + c];
        sum += term, size += std::abs(term);
      }
      ASSERT_NEAR(y[t * outputs + o], static_cast<double>(sum), 1e-14 * static_cast<double>(size)) << t << " " << o;
    }
}

TEST(projection, stored_types_are_widened_exactly) {
  const std::vector<float> x{1, 2, 3};
  std::vector<std::byte> w(6 * 2);
  for (std::int64_t i = 0; i < 6; ++i) store(w.data(), bf16, i, static_cast<double>(i));
  EXPECT_EQ(project({x.data(), packed(fp32, {1, 3})}, {w.data(), packed(bf16, {2, 3})}), (std::vector<double>{8, 26}));
  EXPECT_TRUE(project({nullptr, packed(fp32, {0, 3})}, {w.data(), packed(bf16, {2, 3})}).empty());
  EXPECT_EQ(project({nullptr, packed(fp32, {2, 0})}, {nullptr, packed(bf16, {2, 0})}), std::vector<double>(4, 0.0));
  EXPECT_THROW(project({x.data(), packed(fp32, {1, 3})}, {w.data(), packed(bf16, {3, 2})}), suite_error);
}

}  // namespace
}  // namespace msabench::reference
