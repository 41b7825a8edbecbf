// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "judge/kl_expectation.h"

namespace msabench::judge {
namespace {

std::vector<double> line_of(const tensor_view& t, std::int64_t offset, std::int64_t channels) {
  std::vector<double> values(static_cast<std::size_t>(channels));
  widen(t.data, t.desc.type, offset, channels, values.data());
  return values;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
  return sum;
}

double log_sum_exp(const std::vector<double>& scores) {
  const double m = *std::ranges::max_element(scores);
  double sum = 0;
  for (const double s : scores) sum += std::exp(s - m);
  return m + std::log(sum);
}

double scale_of(double asked, std::int32_t dim) { return asked != 0 ? asked : 1 / std::sqrt(static_cast<double>(dim)); }

}  // namespace

perturbable_kl::perturbable_kl(const reference::kl_inputs& in)
    : in_(in),
      keys_(in.p, in.p.kl_warm_up != 0 ? tensor_view{} : in.ids, in.cu_seqlens_q, in.kv_lens, in.cu_seqlens_kv),
      scale_(scale_of(in.p.softmax_scale, in.p.d)),
      index_scale_(scale_of(in.p.index_scale, in.p.di)),
      factor_(in.p.kl_coeff / (static_cast<double>(std::max<std::int64_t>(keys_.rows(), 1)) * in.p.hkv)) {}

std::int64_t perturbable_kl::rows_with_keys() const {
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < keys_.rows(); ++row) count += keys_.place(row).position >= 0 ? 1 : 0;
  return count;
}

std::optional<perturbable_kl::token_sets> perturbable_kl::sets(std::optional<perturbation> fault, std::int64_t row,
                                                               std::int64_t head) const {
  token_sets of;
  keys_.keys_of(row, head, of.loss);
  if (of.loss.empty()) return std::nullopt;
  const auto& place = keys_.place(row);
  const std::int64_t block = in_.p.block, end = std::min(place.position + 1, place.kv_len);
  if (fault == perturbation::warm_up_over_few)
    std::erase_if(of.loss, [&](std::int64_t j) { return j / block <= place.position / block - in_.p.topk; });
  if (fault == perturbation::key_past_diagonal) {
    if (of.loss.back() != place.position || end >= place.kv_len || end % block == 0) return std::nullopt;
    of.loss.push_back(end);
  }
  of.teacher = of.student = of.loss;
  std::vector<std::int64_t> all(static_cast<std::size_t>(end));
  for (std::int64_t j = 0; j < end; ++j) all[static_cast<std::size_t>(j)] = j;
  if (fault == perturbation::teacher_over_all)
    of.teacher = std::move(all);
  else if (fault == perturbation::student_over_all)
    of.student = std::move(all);
  return of;
}

std::vector<std::vector<double>> perturbable_kl::scores(std::int64_t row, std::int64_t group,
                                                        std::span<const std::int64_t> keys) const {
  const std::int64_t d = in_.p.d, heads = in_.p.group(), first = keys_.first_key(keys_.place(row).sequence);
  std::vector<vector> queries, by_head(static_cast<std::size_t>(heads));
  for (std::int64_t head = group * heads; head < (group + 1) * heads; ++head)
    queries.push_back(line_of(in_.q, in_.q.offset(row, head), d));
  for (const std::int64_t j : keys) {
    const vector k = line_of(in_.k, in_.k.offset(first + j, group), d);
    for (std::size_t h = 0; h < by_head.size(); ++h) by_head[h].push_back(scale_ * dot(queries[h], k));
  }
  return by_head;
}

// P of the keys of the loss.
perturbable_kl::vector perturbable_kl::teacher(std::optional<perturbation> fault, const token_sets& of,
                                               std::int64_t row, std::int64_t group) const {
  const auto heads = static_cast<double>(in_.p.group());
  auto of_loss = scores(row, group, of.loss);
  if (fault == perturbation::teacher_of_mean_logits) {
    vector mean(of.loss.size());
    for (const vector& head : of_loss)
      for (std::size_t j = 0; j < mean.size(); ++j) mean[j] += head[j] / heads;
    of_loss.assign(of_loss.size(), mean);
  }
  const auto normalised = of.teacher == of.loss ? of_loss : scores(row, group, of.teacher);
  if (fault == perturbation::teacher_head_missing) of_loss.pop_back();
  vector mean(of.loss.size());
  for (std::size_t h = 0; h < of_loss.size(); ++h) {
    const double lse = log_sum_exp(normalised[h]);
    for (std::size_t j = 0; j < mean.size(); ++j) mean[j] += std::exp(of_loss[h][j] - lse) / heads;
  }
  return mean;
}

// P' of the keys of the loss, by the query of index head `head`.
perturbable_kl::vector perturbable_kl::student(const token_sets& of, std::int64_t row, std::int64_t head) const {
  const std::int64_t first = keys_.first_key(keys_.place(row).sequence), di = in_.p.di;
  const vector q = line_of(in_.q_idx, in_.q_idx.offset(row, head), di);
  const auto score = [&](std::int64_t j) {
    return index_scale_ * dot(q, line_of(in_.k_idx, in_.k_idx.offset(first + j), di));
  };
  vector normalised;
  for (const std::int64_t j : of.student) normalised.push_back(score(j));
  const double lse = log_sum_exp(normalised);
  vector weights;
  for (const std::int64_t j : of.loss) weights.push_back(std::exp(score(j) - lse));
  return weights;
}

std::optional<std::vector<double>> perturbable_kl::line(std::optional<perturbation> fault, std::int64_t row,
                                                        std::int64_t head) const {
  const auto of = sets(fault, row, head);
  if (!of) return std::nullopt;
  const bool next_head = fault == perturbation::neighbour_head_q;
  vector weights = student(*of, row, next_head ? (head + 1) % in_.p.hi : head);
  if (fault != perturbation::teacher_left_out) {
    const vector main = teacher(fault, *of, row, head);
    for (std::size_t j = 0; j < weights.size(); ++j) weights[j] -= main[j];
  }
  const std::int64_t first = keys_.first_key(keys_.place(row).sequence);
  double factor = factor_ * (fault == perturbation::gradient_unscaled ? 1 : index_scale_);
  if (fault == perturbation::coefficient_left_out)
    factor = index_scale_ / (static_cast<double>(keys_.rows()) * in_.p.hkv);
  vector sum(static_cast<std::size_t>(in_.p.di));
  for (std::size_t j = 0; j < weights.size(); ++j) {
    const vector k = line_of(in_.k_idx, in_.k_idx.offset(first + of->loss[j]), in_.p.di);
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += factor * weights[j] * k[c];
  }
  return sum;
}

}  // namespace msabench::judge
