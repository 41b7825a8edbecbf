// SPDX-License-Identifier: Apache-2.0
// Which declared number would have let a failing row pass: every legal declaration that differs in one field is tried
// on the worst rows.
#include <algorithm>

#include "judge/attend_expectation.h"
#include "judge/cure.h"
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

  // Under a legal declaration.
  bool passes(const numerics& n) const {
    const roundoffs r = resolve(what_.agreed, n);
    if (id_ == "K4b") return group_within(r);
    const attend_gauge gauge(what_, r);
    return std::ranges::all_of(failing_, [&](const auto* row) { return within(gauge, gauges_under(r, *row)); });
  }

 private:
  reference::attend_row gauges_under(const roundoffs& r, const reference::attend_row& row) const {
    const auto error = score_error_of(r);
    if (same(error, score_error_of(declared_))) return row;
    return reference::attend_head(in_, row.row, row.head, error);
  }

  bool group_within(const roundoffs& r) const {
    double squares = 0;
    std::vector<double> out;
    for (const auto* row : failing_) {
      got_.out(row->row, row->head, out);
      const auto size = size_of_errors(r, gauges_under(r, *row), out);
      if (!size) return false;
      squares += size->r * size->r;
    }
    return squares <= most_group_size * most_group_size * static_cast<double>(failing_.size());
  }

  bool within(const attend_gauge& gauge, const reference::attend_row& row) const {
    if (id_ == "K2") return ratio_to(gauge.k2_limit(row), got_.lse(row.row, row.head), row.lse) <= 1;
    if (id_ == "K1" && !gauge.judges_k1(row)) return false;
    if (id_ == "K3" && !gauge.judges_k3()) return false;
    std::vector<double> out;
    got_.out(row.row, row.head, out);
    if (id_ == "K4a") {
      const auto size = size_of_errors(gauge.numbers(), row, out);
      return size && size->r <= most_row_size;
    }
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

constexpr cure_search::store_field store_fields[] = {
    {"p_operand", &numerics::p_operand, truncates_p},
    {"out_store", &numerics::out_store, truncates_out},
    {"partial_store", &numerics::partial_store, truncates_partial},
    {"score_store", &numerics::score_store, truncates_score},
    {"v_operand", &numerics::v_operand, truncates_v},
    {"pv_acc", &numerics::pv_acc, 0},
    {"score_acc", &numerics::score_acc, 0},
};

}  // namespace

std::string find_cure(const subject& what, const reference::attend_inputs& in, const attend_outputs& got,
                      std::span<const reference::attend_row* const> failing, std::string_view id) {
  const retrial again(what, in, got, failing, id);
  const cure_search search(what, [&](const numerics& n) { return again.passes(n); });
  const numerics& declared = what.declared;
  const roundoffs r = resolve(what.agreed, declared);
  std::int64_t keys = 1;
  for (const auto* row : failing) keys = std::max(keys, row->n);

  std::string cure;
  if (id == "K2" && declared.lse_from_rounded_p == 0) {
    numerics n = declared;
    n.lse_from_rounded_p = 1;
    if (search.would_pass(n)) cure = "lse_from_rounded_p 1";
  }
  if (cure.empty()) cure = search.stores(store_fields);
  if (cure.empty()) cure = search.chain(&numerics::chain_out, "chain_out", r.kappa_o(keys), keys + r.splits);
  if (cure.empty()) cure = search.chain(&numerics::chain_row_sum, "chain_row_sum", r.kappa_l(keys), keys);
  if (cure.empty())
    cure = search.chain(&numerics::chain_score, "chain_score", r.kappa_s, std::int64_t{what.agreed.d} + 2);
  if (cure.empty()) cure = search.operands(what.agreed.q);
  if (cure.empty()) cure = search.exponential();
  return cure;
}

}  // namespace msabench::judge
