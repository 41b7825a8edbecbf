// SPDX-License-Identifier: Apache-2.0
#include "attend_world.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/poison.h"
#include "numbers.h"

namespace msabench::judge::test {
namespace {

double truncated_to(double x, dtype t) {
  const double nearest = round_to(x, t);
  if (std::abs(nearest) <= std::abs(x)) return nearest;
  return round_to(nearest * (1 - unit_roundoff(t)), t) == nearest ? std::copysign(std::abs(nearest) - ulp_of(x, t), x)
                                                                  : round_to(nearest * (1 - unit_roundoff(t)), t);
}

float rounded(float x, dtype t, bool truncates) {
  if (t == fp32) return x;
  return static_cast<float>(truncates ? truncated_to(x, t) : round_to(x, t));
}

float as_operand(double x, dtype t) { return static_cast<float>(t == fp64 ? x : round_to(x, t)); }

std::vector<std::int64_t> cumulated(const std::vector<sequence>& all, std::int64_t sequence::* length) {
  std::vector<std::int64_t> sums{0};
  for (const auto& s : all) sums.push_back(sums.back() + s.*length);
  return sums;
}

tensor integers(const std::vector<std::int64_t>& values) {
  tensor t(i32, {static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i)
    t.set_int(static_cast<std::int64_t>(i), static_cast<std::int32_t>(values[i]));
  return t;
}

}  // namespace

tensor::tensor(dtype type, std::vector<std::int64_t> shape) : desc(packed(type, std::move(shape))) {
  bytes.resize(static_cast<std::size_t>(desc.elements() * size_bytes(type)));
}

void tensor::set_int(std::int64_t offset, std::int32_t x) { std::memcpy(bytes.data() + offset * 4, &x, sizeof x); }

numerics honest_numerics(dtype type) {
  numerics n;
  n.operand = n.v_operand = n.out_store = n.p_operand = type;
  n.score_acc = n.score_store = n.pv_acc = n.partial_store = n.ds_operand = fp32;
  return n;
}

attend_world::attend_world(const attend_shape& s, const std::string& family) : shape(s) {
  shape.dense = s.dense || s.segments;
  for (std::size_t b = 0; b < s.sequences.size(); ++b) {
    const auto& seq = s.sequences[b];
    const std::int64_t first_key = cumulated(s.sequences, &sequence::kv_len)[b];
    for (std::int64_t i = 0; i < seq.q_len; ++i)
      places_.push_back({static_cast<std::int64_t>(b), s.segments ? seq.kv_len - 1 : seq.kv_len - seq.q_len + i,
                         seq.kv_len, first_key});
  }
  std::int64_t keys = 0, longest = 0;
  for (const auto& seq : s.sequences) {
    keys += seq.kv_len;
    longest = std::max(longest, seq.kv_len);
  }
  definition.family = family;
  definition.type = s.type;
  definition.operation = agreed.operation = s.segments ? op::vit_attend : s.dense ? op::dense : op::attend;
  agreed.hq = s.hq;
  agreed.hkv = agreed.hi = s.hkv;
  agreed.d = agreed.di = s.d;
  agreed.block = s.block;
  agreed.topk = s.topk;
  agreed.local_blocks = 1;
  agreed.batch = static_cast<std::int64_t>(s.sequences.size());
  agreed.total_q = agreed.max_q_len = rows();
  agreed.total_kv = keys;
  agreed.max_kv_len = longest;
  agreed.q = agreed.kv = agreed.out = s.type;
  agreed.softmax_scale = 1 / std::sqrt(static_cast<double>(s.d));
  declared = honest_numerics(s.type);
  q = tensor(s.type, {rows(), s.hq, s.d});
  k = tensor(s.type, {keys, s.hkv, s.d});
  v = tensor(s.type, {keys, s.hkv, s.d});
  ids = tensor(i32, {rows(), s.hkv, s.topk});
  out = tensor(s.type, {rows(), s.hq, s.d});
  lse = tensor(fp32, {rows(), s.hq});
  cu_q = integers(cumulated(s.sequences, &sequence::q_len));
  cu_kv = integers(cumulated(s.sequences, &sequence::kv_len));
  std::vector<std::int64_t> lens;
  for (const auto& seq : s.sequences) lens.push_back(seq.kv_len);
  kv_lens = integers(lens);
  choose_blocks();
}

void attend_world::fill_random(unsigned seed, double q_scale) {
  std::mt19937 gen(seed);
  for (auto* t : {&q, &k, &v})
    for (std::int64_t i = 0; i < t->desc.elements(); ++i) t->set(i, normal(gen) * (t == &q ? q_scale : 1));
}

void attend_world::fill_block_code() {
  for (std::size_t b = 0; b < shape.sequences.size(); ++b)
    for (std::int64_t j = 0; j < shape.sequences[b].kv_len; ++j)
      for (std::int64_t r = 0; r < shape.hkv; ++r) {
        const std::int64_t key = cu_kv.view().int_at(b) + j;
        v.set(v.view().offset(key, r, (j / shape.block + 17 * r) % shape.d), 1);
      }
}

void attend_world::fill_key_code(std::int64_t coded_block) {
  for (std::size_t b = 0; b < shape.sequences.size(); ++b)
    for (std::int64_t j = 0; j < shape.sequences[b].kv_len; ++j)
      for (std::int64_t r = 0; r < shape.hkv && j / shape.block == coded_block; ++r) {
        const std::int64_t key = cu_kv.view().int_at(b) + j;
        v.set(v.view().offset(key, r, (j % shape.block + 17 * r) % shape.d), 1);
      }
}

void attend_world::fill_carry() {
  for (std::int64_t j = 0; j < v.desc.shape[0]; ++j)
    for (std::int64_t r = 0; r < shape.hkv; ++r)
      for (std::int64_t c = 0; c < shape.d; ++c) {
        const std::int64_t at = j % shape.block;
        const double x = at >= shape.block / 2 ? -1 : at == c % (shape.block / 2) ? 1 + 0x1p-7 : 1;
        v.set(v.view().offset(j, r, c), x);
      }
}

void attend_world::choose_blocks() {
  for (std::int64_t row = 0; row < rows(); ++row)
    for (std::int64_t r = 0; r < shape.hkv; ++r) {
      std::vector<std::int64_t> chosen;
      if (position(row) >= 0) {
        const std::int64_t visible = position(row) / shape.block + 1,
                           count = std::min<std::int64_t>(visible, shape.topk);
        chosen.push_back(visible - 1);
        for (std::int64_t b = visible - 2 - r % 2; b >= 0 && std::ssize(chosen) < count; b -= 1) chosen.push_back(b);
        for (std::int64_t b = 0; std::ssize(chosen) < count; ++b)
          if (std::ranges::find(chosen, b) == chosen.end()) chosen.push_back(b);
        std::ranges::sort(chosen);
      }
      chosen.resize(static_cast<std::size_t>(shape.topk), -1);
      for (std::int64_t i = 0; i < shape.topk; ++i)
        ids.set_int(ids.view().offset(row, r, i), static_cast<std::int32_t>(chosen[static_cast<std::size_t>(i)]));
    }
}

judge::subject attend_world::subject() const {
  judge::subject s{definition,
                   agreed,
                   delivers,
                   declared,
                   {{slot::q, q.view()},
                    {slot::k, k.view()},
                    {slot::v, v.view()},
                    {slot::cu_seqlens_q, cu_q.view()},
                    {slot::kv_lens, kv_lens.view()},
                    {slot::cu_seqlens_kv, cu_kv.view()}},
                   targets};
  if (!shape.dense) s.inputs.emplace(slot::ids, ids.view());
  if (shape.segments) {
    for (const slot lengths : {slot::cu_seqlens_q, slot::kv_lens, slot::cu_seqlens_kv}) s.inputs.erase(lengths);
    s.inputs.emplace(slot::cu_segments, cu_q.view());
  }
  return s;
}

std::vector<std::int64_t> attend_world::all_rows() const {
  std::vector<std::int64_t> all;
  for (std::int64_t row = 0; row < rows(); ++row) all.push_back(row);
  return all;
}

std::vector<std::int64_t> attend_world::selected_keys(std::int64_t row, std::int64_t kv_head) const {
  std::vector<std::int64_t> keys;
  for (std::int64_t j = 0; shape.dense && j <= position(row); ++j) keys.push_back(j);
  for (std::int64_t i = 0; !shape.dense && i < shape.topk; ++i) {
    const auto b = ids.view().int_at(row, kv_head, i);
    for (std::int64_t j = std::int64_t{b} * shape.block; b >= 0 && j < (b + 1) * std::int64_t{shape.block}; ++j)
      if (j <= position(row)) keys.push_back(j);
  }
  return keys;
}

void attend_world::run(const variant& how) {
  for (std::int64_t row = 0; row < rows(); ++row)
    for (std::int64_t head = 0; head < shape.hq; ++head) run_row(how, row, head);
}

void attend_world::run_row(const variant& how, std::int64_t row, std::int64_t head) {
  const std::int64_t kv_head = head / agreed.group(), first = places_[static_cast<std::size_t>(row)].first_key;
  const std::int64_t value_head = how.value_head ? how.value_head(kv_head) : kv_head;
  auto keys = selected_keys(row, kv_head);
  if (how.edit_keys) how.edit_keys(row, kv_head, keys);
  if (how.reversed) std::ranges::reverse(keys);
  const auto d = static_cast<std::size_t>(shape.d);
  const auto n = keys.size();

  std::vector<float> s(n);
  const auto scale = static_cast<float>(agreed.softmax_scale * how.scale_factor);
  for (std::size_t j = 0; j < n; ++j) {
    float dot = 0;
    for (std::int64_t c = 0; c < shape.d; ++c)
      dot = rounded(dot + as_operand(q.view().at(row, head, c), how.operand) *
                              as_operand(k.view().at(first + keys[j], kv_head, c), how.operand),
                    how.score_accumulator, false);
    s[j] = rounded(scale * dot, how.score, false);
  }
  const float m = n == 0 ? 0 : *std::ranges::max_element(s);

  // Splits of equal length, each with its own sum and output, then merged.
  const std::size_t splits = std::max<std::size_t>(1, static_cast<std::size_t>(how.splits));
  std::vector<float> total(d);
  float sum_of_all = 0;
  for (std::size_t part = 0; part < splits; ++part) {
    std::vector<float> acc(d);
    float sum = 0;
    for (std::size_t j = part * n / splits; j < (part + 1) * n / splits; ++j) {
      const float e =
          static_cast<float>(how.exp_factor) * (how.exp2 ? std::exp2((s[j] - m) * 1.44269504F) : std::exp(s[j] - m));
      const float p = rounded(e, how.p, how.truncates_p);
      sum += how.sum_of_rounded_p ? p : e;
      for (std::size_t c = 0; c < d; ++c) {
        const float value = as_operand(v.view().at(first + keys[j], value_head, c), how.value);
        acc[c] = rounded(acc[c] + p * value, how.accumulator, false);
      }
    }
    if (sum == 0) continue;
    // A split stores its normalised output; the merge weighs it by its sum.
    for (std::size_t c = 0; c < d; ++c) {
      const float stored = splits == 1 ? acc[c] : sum * rounded(acc[c] / sum, how.partial, false);
      total[c] += stored;
    }
    sum_of_all += sum;
  }
  for (std::size_t c = 0; c < d; ++c) {
    const float o = n == 0 ? 0 : total[c] / sum_of_all;
    const double stored = how.truncates_out ? truncated_to(o, shape.type) : static_cast<double>(o);
    out.set(out.view().offset(row, head, c), stored);
  }
  const double natural =
      n == 0 ? -std::numeric_limits<double>::infinity() : static_cast<double>(m + std::log(sum_of_all));
  lse.set(lse.view().offset(row, head), natural * how.lse_factor);
}

launch attend_world::outputs() const {
  launch l;
  l.outputs = {{slot::out, out.view()}, {slot::lse, lse.view()}};
  l.outputs_sha256 = "same";
  return l;
}

void attend_world::poison_outputs(int launch_index) {
  for (auto* t : {&out, &lse}) {
    const auto bits = poison_bits(t->desc.type, launch_index, 0);
    const auto size = static_cast<std::size_t>(size_bytes(t->desc.type));
    for (std::int64_t i = 0; i < t->desc.elements(); ++i)
      std::memcpy(t->bytes.data() + static_cast<std::size_t>(i) * size, &bits, size);
  }
}

check_result find_check(const std::vector<check_result>& checks, const std::string& id) {
  const auto at = std::ranges::find(checks, id, &check_result::id);
  if (at == checks.end()) throw std::runtime_error("no check " + id);
  return *at;
}

std::vector<check_result> checks_of(const attend_world& w) {
  return expect(w.subject(), w.all_rows())->check(w.outputs(), 0, 0);
}

bool passes(const std::vector<check_result>& checks) {
  return std::ranges::all_of(checks, [](const auto& c) { return !c.gate || c.passed || !c.observed; });
}

std::string told(const std::vector<check_result>& checks) {
  std::string text;
  for (const auto& c : checks)
    text += fmt::format("{} passed {} observed {} value {} limit {} named '{}' cure '{}' note '{}'\n", c.id, c.passed,
                        c.observed, c.value, c.limit, c.named, c.cure, c.note);
  return text;
}

std::string failing_ids(const std::vector<check_result>& checks) {
  std::string ids;
  for (const auto& c : checks)
    if (!c.passed) ids += (ids.empty() ? "" : " ") + c.id;
  return ids;
}

double seen(attend_world& w, perturbation fault) {
  w.targets = {fault};
  const auto d = expect(w.subject(), w.all_rows())->measure();
  EXPECT_TRUE(d.judged);
  EXPECT_EQ(d.by_fault.size(), 1U);
  EXPECT_TRUE(std::isfinite(d.value));
  return d.value;
}

}  // namespace msabench::judge::test
