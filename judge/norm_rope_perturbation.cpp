// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "core/error.h"
#include "judge/norm_rope_expectation.h"

namespace msabench::judge {
namespace {

// One of the four tensors that the operator treats alike.
struct stream {
  const tensor_view &x, &weight;
};

stream stream_of(const reference::qk_norm_rope_inputs& in, slot output) {
  switch (output) {
    case slot::q_rope:
      return {in.q, in.q_norm};
    case slot::k_rope:
      return {in.k, in.k_norm};
    case slot::q_idx_rope:
      return {in.q_idx, in.q_idx_norm};
    case slot::k_idx_rope:
      return {in.k_idx, in.k_idx_norm};
    default:
      throw suite_error("qk_norm_rope has no such output");
  }
}

std::vector<double> loaded(const tensor_view& t, std::int64_t offset, std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  widen(t.data, t.desc.type, offset, count, values.data());
  return values;
}

void rotate(double cosine, double sine, double& first, double& second) {
  const double a = first, b = second;
  first = a * cosine - b * sine;
  second = b * cosine + a * sine;
}

}  // namespace

perturbable_head::perturbable_head(const reference::qk_norm_rope_inputs& in, const reference::qk_norm_rope_row& want,
                                   std::int64_t in_chunk)
    : in_(in), output_(want.output), row_(want.row), position_(want.position), in_chunk_(in_chunk) {
  const auto [x, weight] = stream_of(in, output_);
  const std::int64_t dim = weight.desc.shape[0];
  x_ = loaded(x, x.desc.shape.size() == 3 ? x.offset(row_, want.head) : x.offset(row_), dim);
  weights_ = loaded(weight, 0, dim);
  angles_ = angles_at(position_);
}

perturbable_head::line perturbable_head::angles_at(std::int64_t position) const {
  return in_.p.rope_dims == 0 ? line{} : loaded(in_.cos_sin, in_.cos_sin.offset(position), in_.p.rope_dims);
}

perturbable_head::line perturbable_head::rotated(const line& weights, double eps, const line& angles) const {
  line y(x_.size());
  reference::norm_rope(x_, weights, eps, angles, y);
  return y;
}

// The mean square of the token's heads instead of the head's own: as if eps were larger by the difference.
std::optional<perturbable_head::line> perturbable_head::across_heads() const {
  const tensor_view& x = stream_of(in_, output_).x;
  if (x.desc.shape.size() < 3 || x.desc.shape[1] < 2) return std::nullopt;
  double own = 0, all = 0;
  for (const double value : x_) own += value * value;
  for (std::int64_t head = 0; head < x.desc.shape[1]; ++head)
    for (const double value : loaded(x, x.offset(row_, head), x.desc.shape[2])) all += value * value;
  const double mean = all / static_cast<double>(x.desc.shape[1]), dim = static_cast<double>(x_.size());
  return rotated(weights_, in_.p.norm_eps + (mean - own) / dim, angles_);
}

std::optional<perturbable_head::line> perturbable_head::at_position(std::int64_t position) const {
  if (position == position_ || angles_.empty() || position < 0 || position >= in_.cos_sin.desc.shape[0])
    return std::nullopt;
  return rotated(weights_, in_.p.norm_eps, angles_at(position));
}

std::optional<perturbable_head::line> perturbable_head::all_dims() const {
  const std::size_t half = angles_.size() / 2, dim = x_.size();
  if (half == 0 || 2 * half == dim || dim % 2 != 0) return std::nullopt;
  line angles(dim);
  for (std::size_t c = 0; c < dim / 2; ++c) {
    angles[c] = angles_[c % half];
    angles[dim / 2 + c] = angles_[half + c % half];
  }
  return rotated(weights_, in_.p.norm_eps, angles);
}

std::optional<perturbable_head::line> perturbable_head::interleaved() const {
  const std::size_t half = angles_.size() / 2;
  if (half < 2) return std::nullopt;
  line y = rotated(weights_, in_.p.norm_eps, {});
  for (std::size_t c = 0; c < half; ++c) rotate(angles_[c], angles_[half + c], y[2 * c], y[2 * c + 1]);
  return y;
}

std::optional<perturbable_head::line> perturbable_head::backwards() const {
  if (angles_.empty()) return std::nullopt;
  line angles = angles_;
  for (std::size_t c = angles.size() / 2; c < angles.size(); ++c) angles[c] = -angles[c];
  return rotated(weights_, in_.p.norm_eps, angles);
}

std::optional<perturbable_head::line> perturbable_head::main_weights() const {
  const tensor_view* other = output_ == slot::q_idx_rope   ? &in_.q_norm
                             : output_ == slot::k_idx_rope ? &in_.k_norm
                                                           : nullptr;
  if (other == nullptr || other->desc.shape[0] != std::ssize(x_)) return std::nullopt;
  return rotated(loaded(*other, 0, std::ssize(x_)), in_.p.norm_eps, angles_);
}

std::optional<perturbable_head::line> perturbable_head::rounded_between() const {
  const std::size_t half = angles_.size() / 2;
  if (half == 0) return std::nullopt;
  line y = rotated(weights_, in_.p.norm_eps, {});
  for (double& value : y) value = round_to(value, in_.p.q);
  for (std::size_t c = 0; c < half; ++c) rotate(angles_[c], angles_[half + c], y[c], y[half + c]);
  return y;
}

std::optional<std::vector<double>> perturbable_head::apply(perturbation fault) const {
  switch (fault) {
    case perturbation::weight_without_one: {
      line weights = weights_;
      for (double& w : weights) w -= 1;
      return rotated(weights, in_.p.norm_eps, angles_);
    }
    case perturbation::eps_missing:
      return rotated(weights_, 0, angles_);
    case perturbation::norm_across_heads:
      return across_heads();
    case perturbation::position_after:
      // The last position of the table has none after it.
      return at_position(position_ + 1 < in_.cos_sin.desc.shape[0] ? position_ + 1 : position_ - 1);
    case perturbation::position_in_chunk:
      return at_position(in_chunk_);
    case perturbation::rope_all_dims:
      return all_dims();
    case perturbation::rope_interleaved:
      return interleaved();
    case perturbation::rope_backwards:
      return backwards();
    case perturbation::main_norm_for_index:
      return main_weights();
    case perturbation::rounded_after_norm:
      return rounded_between();
    default:
      return std::nullopt;
  }
}

}  // namespace msabench::judge
