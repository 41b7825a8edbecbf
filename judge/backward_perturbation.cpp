// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <iterator>

#include "core/error.h"
#include "judge/backward_expectation.h"

namespace msabench::judge {
namespace {

std::vector<double> line_of(const tensor_view& t, std::int64_t row, std::int64_t head, std::int64_t channels) {
  std::vector<double> values(static_cast<std::size_t>(channels));
  widen(t.data, t.desc.type, t.offset(row, head), channels, values.data());
  return values;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
  return sum;
}

void add(double factor, const std::vector<double>& x, std::vector<double>& to) {
  for (std::size_t c = 0; c < x.size(); ++c) to[c] += factor * x[c];
}

}  // namespace

perturbable_gradients::perturbable_gradients(const subject& what, const reference::backward_inputs& in,
                                             const reference::backward_result& want)
    : what_(what),
      in_(in),
      want_(want),
      out_(what.inputs.at(slot::out)),
      lse_(what.inputs.at(slot::lse)),
      keys_(in.p, in.ids, in.cu_seqlens_q, in.kv_lens, in.cu_seqlens_kv),
      scale_(in.p.softmax_scale != 0 ? in.p.softmax_scale : 1 / std::sqrt(static_cast<double>(in.p.d))) {
  for (const auto& tile : keys_.tiles()) tile_at_[keys_.first_key(tile.sequence) + tile.first] = &tile;
}

perturbable_gradients::place_of_key perturbable_gradients::find(std::int64_t key) const {
  auto after = tile_at_.upper_bound(key);
  if (after == tile_at_.begin()) throw suite_error("a gradient of a key that no sequence has");
  const auto* tile = std::prev(after)->second;
  return {tile->sequence, key - keys_.first_key(tile->sequence), tile};
}

perturbable_gradients::term perturbable_gradients::term_of(std::int64_t row, std::int64_t head,
                                                           std::int64_t key) const {
  const std::int64_t kv_head = head / in_.p.group(), d = in_.p.d;
  const double score = scale_ * dot(line_of(in_.q, row, head, d), line_of(in_.k, key, kv_head, d));
  return {std::exp(score - lse_.at(row, head)), dot(line_of(in_.d_out, row, head, d), line_of(in_.v, key, kv_head, d))};
}

double perturbable_gradients::delta_of(std::int64_t row, std::int64_t head) const {
  return dot(line_of(in_.d_out, row, head, in_.p.d), line_of(out_, row, head, in_.p.d));
}

std::optional<double> perturbable_gradients::delta_error(perturbation fault, std::int64_t row,
                                                         std::int64_t head) const {
  const double own = delta_of(row, head);
  if (fault == perturbation::delta_left_out) return -own;
  if (fault != perturbation::delta_of_next_head || in_.p.hq == 1) return std::nullopt;
  return delta_of(row, (head + 1) % in_.p.hq) - own;
}

template <class Visit>
void perturbable_gradients::for_each_reader(std::int64_t key, std::int64_t kv_head, const Visit& visit) const {
  const place_of_key at = find(key);
  std::vector<std::int64_t> rows;
  keys_.rows_of(*at.tile, kv_head, rows);
  for (const std::int64_t row : rows) {
    if (at.position - at.tile->first >= keys_.visible_in(*at.tile, row)) continue;
    for (std::int64_t member = 0; member < in_.p.group(); ++member) visit(row, kv_head * in_.p.group() + member);
  }
}

// The key behind the row's own, where its block is selected and the sequence has it.
std::optional<perturbable_gradients::vector> perturbable_gradients::next_key_of_dq(std::int64_t row,
                                                                                   std::int64_t head) const {
  const auto& place = keys_.place(row);
  const std::int64_t kv_head = head / in_.p.group(), next = place.position + 1;
  if (next >= place.kv_len || (next % what_.agreed.block == 0 && !in_.ids.desc.shape.empty())) return std::nullopt;
  std::vector<std::int64_t> keys;
  keys_.keys_of(row, kv_head, keys);
  if (keys.empty() || keys.back() != place.position) return std::nullopt;
  const std::int64_t key = keys_.first_key(place.sequence) + next;
  const term t = term_of(row, head, key);
  vector change(static_cast<std::size_t>(in_.p.d));
  add(scale_ * t.weight * (t.d_weight - delta_of(row, head)), line_of(in_.k, key, kv_head, in_.p.d), change);
  return change;
}

std::optional<perturbable_gradients::vector> perturbable_gradients::change_of_dq(perturbation fault, std::int64_t row,
                                                                                 std::int64_t head) const {
  if (fault == perturbation::key_past_diagonal) return next_key_of_dq(row, head);
  vector change(static_cast<std::size_t>(in_.p.d));
  if (fault == perturbation::gradient_unscaled) {
    for (std::size_t c = 0; c < change.size(); ++c)
      change[c] = want_.dq.value[want_.dq.element(row, head, 0) + c] * (1 / scale_ - 1);
    return change;
  }
  const auto error = delta_error(fault, row, head);
  if (!error) return std::nullopt;
  std::vector<std::int64_t> keys;
  const std::int64_t kv_head = head / in_.p.group(), first = keys_.first_key(keys_.place(row).sequence);
  keys_.keys_of(row, kv_head, keys);
  for (const std::int64_t j : keys)
    add(-scale_ * *error * term_of(row, head, first + j).weight, line_of(in_.k, first + j, kv_head, in_.p.d), change);
  return change;
}

// What sums in 16 bits, one term after the other, lose of dk or dv.
perturbable_gradients::vector perturbable_gradients::short_sum(std::int64_t key, std::int64_t kv_head,
                                                               bool values) const {
  const dtype type = in_.p.q == fp16 ? fp16 : bf16;
  const auto channels = static_cast<std::size_t>(in_.p.d);
  vector kept(channels), exact(channels);
  for_each_reader(key, kv_head, [&](std::int64_t row, std::int64_t head) {
    const term t = term_of(row, head, key);
    const double factor = values ? t.weight : scale_ * t.weight * (t.d_weight - delta_of(row, head));
    const vector x = line_of(values ? in_.d_out : in_.q, row, head, in_.p.d);
    for (std::size_t c = 0; c < channels; ++c) {
      kept[c] = round_to(kept[c] + factor * x[c], type);
      exact[c] += factor * x[c];
    }
  });
  add(-1, exact, kept);
  return kept;
}

std::optional<perturbable_gradients::vector> perturbable_gradients::change_of_dk(perturbation fault, std::int64_t key,
                                                                                 std::int64_t kv_head) const {
  if (fault == perturbation::accumulate_16bit) return short_sum(key, kv_head, false);
  if (fault != perturbation::delta_left_out && fault != perturbation::delta_of_next_head) return std::nullopt;
  vector change(static_cast<std::size_t>(in_.p.d));
  for_each_reader(key, kv_head, [&](std::int64_t row, std::int64_t head) {
    if (const auto error = delta_error(fault, row, head))
      add(-scale_ * *error * term_of(row, head, key).weight, line_of(in_.q, row, head, in_.p.d), change);
  });
  return change;
}

std::optional<perturbable_gradients::vector> perturbable_gradients::change_of_dv(perturbation fault, std::int64_t key,
                                                                                 std::int64_t kv_head) const {
  if (fault == perturbation::accumulate_16bit) return short_sum(key, kv_head, true);
  if (fault != perturbation::gradient_of_next_group || in_.p.hkv == 1) return std::nullopt;
  vector change(static_cast<std::size_t>(in_.p.d));
  for (std::size_t c = 0; c < change.size(); ++c)
    change[c] = want_.dv.value[want_.dv.element(key, (kv_head + 1) % in_.p.hkv, 0) + c] -
                want_.dv.value[want_.dv.element(key, kv_head, 0) + c];
  return change;
}

std::optional<std::vector<double>> perturbable_gradients::change(perturbation fault, slot where, std::int64_t line,
                                                                 std::int64_t head) const {
  switch (where) {
    case slot::dq:
      return change_of_dq(fault, line, head);
    case slot::dk:
      return change_of_dk(fault, line, head);
    case slot::dv:
      return change_of_dv(fault, line, head);
    default:
      throw suite_error("attention has no such gradient");
  }
}

}  // namespace msabench::judge
