// SPDX-License-Identifier: Apache-2.0
#include "index_world.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "numbers.h"
#include "reference/select.h"

namespace msabench::judge::test {
index_world::index_world(op operation, const index_shape& given) : shape(given) {
  agreed.operation = definition.operation = operation;
  definition.family = "random";
  agreed.hq = agreed.hkv = agreed.hi = shape.heads;
  agreed.d = agreed.di = shape.di;
  agreed.block = shape.block;
  agreed.topk = shape.topk;
  agreed.local_blocks = shape.local_blocks;
  agreed.init_blocks = shape.init_blocks;
  agreed.q = agreed.kv = agreed.out = agreed.q_idx = agreed.k_idx = shape.type;
  agreed.index_scale = 1 / std::sqrt(static_cast<double>(shape.di));
  const auto batch = std::ssize(shape.sequences);
  cu_q = tensor(i32, {batch + 1});
  cu_kv = tensor(i32, {batch + 1});
  kv_lens = tensor(i32, {batch});
  std::int64_t rows = 0, keys = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    const sequence& s = shape.sequences[static_cast<std::size_t>(b)];
    for (std::int64_t i = 0; i < s.q_len; ++i) places_.push_back({b, s.kv_len - s.q_len + i, s.kv_len, keys});
    rows += s.q_len;
    keys += s.kv_len;
    agreed.max_kv_len = std::max(agreed.max_kv_len, s.kv_len);
    cu_q.set_int(b + 1, static_cast<std::int32_t>(rows));
    cu_kv.set_int(b + 1, static_cast<std::int32_t>(keys));
    kv_lens.set_int(b, static_cast<std::int32_t>(s.kv_len));
  }
  agreed.batch = batch;
  agreed.total_q = rows;
  agreed.total_kv = keys;
  q_idx = tensor(shape.type, {rows, shape.heads, shape.di});
  k_idx = tensor(shape.type, {keys, shape.di});
  scores = tensor(fp32, {shape.heads, rows, agreed.max_blocks()});
  ids = tensor(i32, {rows, shape.heads, shape.topk});
  lse_idx = tensor(fp32, {rows, shape.heads});
  declared = honest_numerics(shape.type);
  fill_random(1);
}

void index_world::fill_random(unsigned seed, double q_scale) {
  std::mt19937 gen(seed);
  for (std::int64_t i = 0; i < q_idx.desc.elements(); ++i) q_idx.set(i, q_scale * normal(gen));
  for (std::int64_t i = 0; i < k_idx.desc.elements(); ++i) k_idx.set(i, normal(gen));
}

void index_world::set_key(std::int64_t sequence, std::int64_t key, std::int64_t channel, double value) {
  k_idx.set(k_idx.view().offset(cu_kv.view().int_at(sequence) + key, channel), value);
}

judge::subject index_world::subject() const {
  return {definition,
          agreed,
          delivers,
          declared,
          {{slot::q_idx, q_idx.view()},
           {slot::k_idx, k_idx.view()},
           {slot::cu_seqlens_q, cu_q.view()},
           {slot::cu_seqlens_kv, cu_kv.view()},
           {slot::kv_lens, kv_lens.view()}},
          targets};
}

std::vector<std::int64_t> index_world::all_rows() const {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < std::ssize(places_); ++i) all.push_back(i);
  return all;
}

std::int64_t index_world::visible(std::int64_t row) const {
  const auto position = places_[static_cast<std::size_t>(row)].position;
  return position < 0 ? 0 : position / shape.block + 1;
}

float index_world::score_of(const index_variant& v, std::int64_t row, std::int64_t head, std::int64_t key) const {
  const auto& at = places_[static_cast<std::size_t>(row)];
  const auto scale = static_cast<float>(agreed.index_scale);
  const auto short_to = [](float x, dtype t) { return t == fp32 ? x : static_cast<float>(round_to(x, t)); };
  float sum = 0;
  for (std::int64_t i = 0; i < shape.di; ++i) {
    const std::int64_t c = v.reversed ? shape.di - 1 - i : i;
    auto q = static_cast<float>(q_idx.view().at(row, (head + v.head_shift) % shape.heads, c));
    if (v.prescaled_q) q = static_cast<float>(round_to(q * scale, shape.type));
    sum = short_to(sum + q * static_cast<float>(k_idx.view().at(at.first_key + key, c)), v.accumulator);
  }
  return short_to(v.prescaled_q || v.raw ? sum : sum * scale, v.score_store);
}

void index_world::run(const index_variant& v) {
  for (const std::int64_t row : all_rows()) {
    const auto& at = places_[static_cast<std::size_t>(row)];
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      std::vector<double> best(static_cast<std::size_t>(agreed.max_blocks()), -infinity);
      const std::int64_t own_end = visible(row) * shape.block;
      const std::int64_t end = std::min({at.position + 1 + v.visible_more, at.kv_len, own_end});
      for (std::int64_t key = 0; key < end; ++key) {
        if (key == v.dropped_key) continue;
        const float s = score_of(v, row, head, key);
        double& block = best[static_cast<std::size_t>(key / shape.block)];
        if (std::isnan(s) ? v.propagates_nan : s > block) block = s;
      }
      for (std::int64_t b = 0; b < agreed.max_blocks(); ++b) {
        double& s = best[static_cast<std::size_t>(b)];
        if (v.relu && b < visible(row)) s = std::max(s, 0.0);
        scores.set(scores.view().offset(head, row, b), s);
      }
      const auto chosen = reference::select_row(best, visible(row), shape.topk, shape.local_blocks, shape.init_blocks);
      float sum = 0;
      for (std::size_t i = 0; i < chosen.size(); ++i) {
        ids.set_int(ids.view().offset(row, head, i), chosen[i]);
        for (std::int64_t key = chosen[i] * shape.block; chosen[i] >= 0 && key < (chosen[i] + 1) * shape.block; ++key)
          if (key <= at.position) sum += std::exp(score_of(v, row, head, key));
      }
      lse_idx.set(lse_idx.view().offset(row, head), v.lse_factor * std::log(static_cast<double>(sum)));
    }
  }
}

launch index_world::outputs() const {
  launch l;
  if (agreed.operation == op::score) {
    l.outputs = {{slot::scores, scores.view()}};
  } else {
    l.outputs = {{slot::ids, ids.view()}, {slot::lse_idx, lse_idx.view()}};
  }
  return l;
}

std::vector<check_result> index_world::checks() const { return expect(subject(), all_rows())->check(outputs(), 0, 0); }

}  // namespace msabench::judge::test
