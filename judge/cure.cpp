// SPDX-License-Identifier: Apache-2.0
#include "judge/cure.h"

#include <fmt/format.h>

#include <cmath>

namespace msabench::judge {
namespace {

// From fine to coarse, so that the smallest admission is named.
constexpr dtype formats[] = {fp32, fp8_acc, tf32, fp16, bf16, e4m3};

}  // namespace

bool cure_search::would_pass(const numerics& n) const {
  return n != what_.declared && broken_declarations(what_.agreed, n, what_.delivers).empty() && passes_(n);
}

std::string cure_search::stores(std::span<const store_field> fields) const {
  const numerics& declared = what_.declared;
  for (const auto& field : fields) {
    const dtype now = declared.*field.type;
    if (field.truncation != 0 && (declared.truncated & field.truncation) == 0) {
      numerics n = declared;
      n.truncated |= field.truncation;
      if (would_pass(n)) return fmt::format("{} {} truncated instead of to nearest", field.name, name(now));
    }
    for (const auto t : formats) {
      const bool accumulator = field.type == &numerics::pv_acc || field.type == &numerics::score_acc;
      if (t == now || (t == fp8_acc && !accumulator)) continue;  // fp8_acc is a format of accumulators alone
      numerics n = declared;
      n.*field.type = t;
      if (would_pass(n)) return fmt::format("{} {} instead of {}", field.name, name(t), name(now));
      n.truncated |= field.truncation;
      if (field.truncation != 0 && would_pass(n))
        return fmt::format("{} {} truncated instead of {}", field.name, name(t), name(now));
    }
  }
  return {};
}

std::string cure_search::operands(dtype storage) const {
  const numerics& declared = what_.declared;
  for (const auto t : {declared.operand, storage, tf32, fp16, bf16})
    for (std::uint8_t rounded = 1; rounded <= 2; ++rounded) {
      numerics n = declared;
      n.operand = t;
      n.rounded_operands = rounded;
      if (would_pass(n))
        return fmt::format("operand {} with rounded_operands {} instead of {} with {}", name(t), rounded,
                           name(declared.operand), declared.rounded_operands);
    }
  return {};
}

std::string cure_search::chain(std::uint32_t numerics::* chain, std::string_view field, std::int64_t now,
                               std::int64_t longest) const {
  const auto with = [&](std::int64_t length) {
    numerics n = what_.declared;
    n.*chain = static_cast<std::uint32_t>(length);
    return n;
  };
  if (longest <= now || !would_pass(with(longest))) return {};
  std::int64_t low = now, high = longest;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (would_pass(with(middle)) ? high : low) = middle;
  }
  return fmt::format("{} >= {}", field, high);
}

std::string cure_search::exponential() const {
  for (int e = -21; e <= -18; ++e) {
    numerics n = what_.declared;
    n.exp_rel_error = std::ldexp(1.0F, e);
    if (n.exp_rel_error > what_.declared.exp_rel_error && would_pass(n)) return fmt::format("exp_rel_error >= 2^{}", e);
  }
  return {};
}

}  // namespace msabench::judge
