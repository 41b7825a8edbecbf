// SPDX-License-Identifier: Apache-2.0
// Reading inputs and outputs of `attend` in the contract's own terms, and the ratio of a row's errors to its limits.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/dtype.h"
#include "judge/answers.h"
#include "judge/attend_expectation.h"
#include "judge/input.h"
#include "judge/limits.h"

namespace msabench::judge {
namespace {

const tensor_view* output(const launch& l, slot s) {
  const auto found = l.outputs.find(s);
  return found == l.outputs.end() || found->second.desc.shape.empty() ? nullptr : &found->second;
}

}  // namespace

reference::attend_inputs attend_inputs_of(const subject& what) {
  reference::attend_inputs in{what.agreed,
                              input(what, slot::q),
                              input(what, slot::k),
                              input(what, slot::v),
                              tokens_first(input(what, slot::ids), what.agreed.asked.in_id_layout),
                              input(what, slot::cu_seqlens_q),
                              input(what, slot::kv_lens),
                              input(what, slot::cu_seqlens_kv),
                              input(what, slot::block_table),
                              input(what, slot::q_scale),
                              input(what, slot::k_scale),
                              input(what, slot::v_scale)};
  if (what.agreed.operation == op::vit_attend) in.cu_seqlens_q = in.cu_seqlens_kv = input(what, slot::cu_segments);
  return in;
}

probe probe_of(const case_spec& c) {
  if (c.family == "block_code" || c.family == "key_code") return probe::code;
  return c.family == "carry" ? probe::carry : probe::none;
}

bool attend_gauge::judges_k1(const reference::attend_row& row) const { return row.n > 0 && row.eta_bar <= most_eta; }

// A coarser accumulator loses what the carry probe looks for, and says so.
bool attend_gauge::judges_k3() const {
  return probe_ == probe::code || (probe_ == probe::carry && r_.u_m_out <= 2 * u32);
}

bool attend_gauge::judges_k4() const {
  return has_independent_values(what_.definition) && judges_error_size(what_.agreed, what_.declared);
}

double attend_gauge::k1_limit(const reference::attend_row& row, std::size_t c) const {
  return limit_of_output(r_, row, c).total;
}

double attend_gauge::k2_limit(const reference::attend_row& row) const { return limit_of_lse(r_, row).total; }

double attend_gauge::k3_limit(const reference::attend_row& row, std::size_t c) const {
  const dtype stored = what_.agreed.out;
  return probe_ == probe::carry ? limit_of_carry(r_, row, c, stored).total : limit_of_code(r_, row, c, stored).total;
}

std::vector<std::pair<std::string, double>> attend_gauge::k3_terms(const reference::attend_row& row,
                                                                   std::size_t c) const {
  const dtype stored = what_.agreed.out;
  return probe_ == probe::carry ? listed(limit_of_carry(r_, row, c, stored))
                                : listed(limit_of_code(r_, row, c, stored));
}

double attend_gauge::worst_ratio(const reference::attend_row& row, std::span<const double> out, double lse,
                                 bool with_lse, std::string* which) const {
  double worst = 0;
  const auto consider = [&](double ratio, const char* id) {
    if (ratio <= worst) return;
    worst = ratio;
    if (which) *which = id;
  };
  for (std::size_t c = 0; c < out.size(); ++c) {
    if (judges_k1(row)) consider(ratio_to(k1_limit(row, c), out[c], row.out[c]), "K1");
    if (judges_k3()) consider(ratio_to(k3_limit(row, c), out[c], row.out[c]), "K3");
  }
  if (judges_k4())
    if (const auto size = size_of_errors(r_, row, out)) consider(size->r / most_row_size, "K4a");
  if (with_lse) consider(ratio_to(k2_limit(row), lse, row.lse), "K2");
  return worst;
}

attend_outputs::attend_outputs(const subject& what, const launch& l) : out_(output(l, slot::out)) {
  if (what.delivers.lse != lse_form::none) lse_ = output(l, slot::lse);
}

void attend_outputs::out(std::int64_t row, std::int64_t head, std::vector<double>& channels) const {
  channels.resize(static_cast<std::size_t>(out_->desc.shape[2]));
  widen(out_->data, out_->desc.type, out_->offset(row, head), out_->desc.shape[2], channels.data());
}

double attend_outputs::lse(std::int64_t row, std::int64_t head) const { return lse_->at(row, head); }

void attend_expectation::answer(answers& into, const launch& outputs) const {
  const attend_outputs got(what_, outputs);
  const double none = std::numeric_limits<double>::quiet_NaN();
  for (const auto& row : want_) {
    for (std::size_t c = 0; c < row.out.size(); ++c) {
      double limit = gauge_.judges_k1(row) ? gauge_.k1_limit(row, c) : none;
      if (row.n == 0) limit = 0;
      if (gauge_.judges_k3() && row.n > 0) limit = std::fmin(limit, gauge_.k3_limit(row, c));
      into.set(slot::out, std::vector{row.row, row.head, static_cast<std::int64_t>(c)}, row.out[c], limit);
    }
    if (got.has_lse())
      into.set(slot::lse, std::vector{row.row, row.head}, row.lse, row.n == 0 ? 0 : gauge_.k2_limit(row));
  }
}

}  // namespace msabench::judge
