// SPDX-License-Identifier: Apache-2.0
// Which declared number would have let a failing row pass: every legal declaration that differs in one field is tried
// on the worst rows. "None" then says that no honest declaration explains the error.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "judge/attend_expectation.h"
#include "judge/limits.h"

namespace msabench::judge {
namespace {

bool same(const reference::score_error& a, const reference::score_error& b) {
  return a.per_magnitude == b.per_magnitude && a.per_score == b.per_score && a.constant == b.constant &&
         a.per_size == b.per_size;
}

// Judges the failing rows again under another declaration.
class retrial {
 public:
  retrial(const subject& what, const reference::attend_inputs& in, const attend_outputs& got,
          std::span<const reference::attend_row* const> failing, std::string_view id)
      : what_(what), in_(in), got_(got), failing_(failing), id_(id), declared_(resolve(what.agreed, what.declared)) {}

  bool passes(const numerics& n) const {
    if (n == what_.declared || !broken_declarations(what_.agreed, n, what_.delivers).empty()) return false;
    const roundoffs r = resolve(what_.agreed, n);
    const attend_gauge gauge(what_, r);
    return std::ranges::all_of(failing_, [&](const auto* row) { return within(gauge, gauges_under(r, *row)); });
  }

 private:
  reference::attend_row gauges_under(const roundoffs& r, const reference::attend_row& row) const {
    const auto error = score_error_of(r);
    if (same(error, score_error_of(declared_))) return row;
    const std::int64_t rows[] = {row.row};
    auto heads = reference::attend(in_, rows, error);
    return std::move(heads[static_cast<std::size_t>(row.head)]);
  }

  bool within(const attend_gauge& gauge, const reference::attend_row& row) const {
    if (id_ == "K2") return ratio_to(gauge.k2_limit(row), got_.lse(row.row, row.head), row.lse) <= 1;
    if (id_ == "K1" && !gauge.judges_k1(row)) return false;
    if (id_ == "K3" && !gauge.judges_k3()) return false;
    std::vector<double> out;
    got_.out(row.row, row.head, out);
    for (std::size_t c = 0; c < out.size(); ++c) {
      const double limit = id_ == "K1" ? gauge.k1_limit(row, c) : gauge.k3_limit(row, c);
      if (!(ratio_to(limit, out[c], row.out[c]) <= 1)) return false;
    }
    return true;
  }

  const subject& what_;
  const reference::attend_inputs& in_;
  const attend_outputs& got_;
  std::span<const reference::attend_row* const> failing_;
  std::string_view id_;
  roundoffs declared_;
};

struct store_field {
  std::string_view name;
  dtype numerics::* type;
  std::uint32_t truncation;  // 0: none
};

constexpr store_field store_fields[] = {
    {"p_operand", &numerics::p_operand, truncates_p},
    {"out_store", &numerics::out_store, truncates_out},
    {"partial_store", &numerics::partial_store, truncates_partial},
    {"score_store", &numerics::score_store, truncates_score},
    {"v_operand", &numerics::v_operand, truncates_v},
    {"pv_acc", &numerics::pv_acc, 0},
    {"score_acc", &numerics::score_acc, 0},
};

// From fine to coarse, so that the smallest admission is named.
constexpr dtype formats[] = {fp32, fp8_acc, tf32, fp16, bf16, e4m3};

std::string try_stores(const retrial& again, const numerics& declared) {
  for (const auto& field : store_fields) {
    const dtype now = declared.*field.type;
    if (field.truncation != 0 && (declared.truncated & field.truncation) == 0) {
      numerics n = declared;
      n.truncated |= field.truncation;
      if (again.passes(n)) return fmt::format("{} {} truncated instead of to nearest", field.name, name(now));
    }
    for (const auto t : formats) {
      const bool accumulator = field.type == &numerics::pv_acc || field.type == &numerics::score_acc;
      if (t == now || (t == fp8_acc && !accumulator)) continue;  // fp8_acc is a format of accumulators alone
      numerics n = declared;
      n.*field.type = t;
      if (again.passes(n)) return fmt::format("{} {} instead of {}", field.name, name(t), name(now));
      n.truncated |= field.truncation;
      if (field.truncation != 0 && again.passes(n))
        return fmt::format("{} {} truncated instead of {}", field.name, name(t), name(now));
    }
  }
  return {};
}

std::string try_operands(const retrial& again, const numerics& declared, dtype storage) {
  for (const auto t : {declared.operand, storage, tf32, fp16, bf16})
    for (std::uint8_t rounded = 1; rounded <= 2; ++rounded) {
      numerics n = declared;
      n.operand = t;
      n.rounded_operands = rounded;
      if (again.passes(n))
        return fmt::format("operand {} with rounded_operands {} instead of {} with {}", name(t), rounded,
                           name(declared.operand), declared.rounded_operands);
    }
  return {};
}

// The shortest chain that would do, between what counts now and the longest that may be declared.
std::string try_chain(const retrial& again, const numerics& declared, std::uint32_t numerics::* chain,
                      std::string_view field, std::int64_t now, std::int64_t longest) {
  const auto with = [&](std::int64_t length) {
    numerics n = declared;
    n.*chain = static_cast<std::uint32_t>(length);
    return n;
  };
  if (longest <= now || !again.passes(with(longest))) return {};
  std::int64_t low = now, high = longest;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (again.passes(with(middle)) ? high : low) = middle;
  }
  return fmt::format("{} >= {}", field, high);
}

std::string try_exp(const retrial& again, const numerics& declared) {
  for (int e = -21; e <= -18; ++e) {
    numerics n = declared;
    n.exp_rel_error = std::ldexp(1.0F, e);
    if (n.exp_rel_error > declared.exp_rel_error && again.passes(n)) return fmt::format("exp_rel_error >= 2^{}", e);
  }
  return {};
}

}  // namespace

std::string find_cure(const subject& what, const reference::attend_inputs& in, const attend_outputs& got,
                      std::span<const reference::attend_row* const> failing, std::string_view id) {
  const retrial again(what, in, got, failing, id);
  const numerics& declared = what.declared;
  const roundoffs r = resolve(what.agreed, declared);
  std::int64_t keys = 1;
  for (const auto* row : failing) keys = std::max(keys, row->n);

  std::string cure;
  if (id == "K2" && declared.lse_from_rounded_p == 0) {
    numerics n = declared;
    n.lse_from_rounded_p = 1;
    if (again.passes(n)) cure = "lse_from_rounded_p 1";
  }
  if (cure.empty()) cure = try_stores(again, declared);
  if (cure.empty()) cure = try_operands(again, declared, what.agreed.q);
  if (cure.empty())
    cure = try_chain(again, declared, &numerics::chain_out, "chain_out", r.kappa_o(keys), keys + r.splits);
  if (cure.empty()) cure = try_chain(again, declared, &numerics::chain_row_sum, "chain_row_sum", r.kappa_l(keys), keys);
  if (cure.empty())
    cure =
        try_chain(again, declared, &numerics::chain_score, "chain_score", r.kappa_s, std::int64_t{what.agreed.d} + 2);
  if (cure.empty()) cure = try_exp(again, declared);
  return cure;
}

}  // namespace msabench::judge
