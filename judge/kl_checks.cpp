// SPDX-License-Identifier: Apache-2.0
#include "judge/kl_expectation.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "judge/answers.h"
#include "judge/backward_expectation.h"
#include "judge/cure.h"
#include "judge/element_check.h"
#include "judge/error_size.h"
#include "judge/index_branch.h"
#include "judge/input.h"

namespace msabench::judge {
namespace {

std::vector<judged_gradient> judged(const launch& l, const reference::kl_result& want) {
  return {{slot::dq_idx, want.dq_idx, kl_output(l, slot::dq_idx)},
          {slot::dk_idx, want.dk_idx, kl_output(l, slot::dk_idx)}};
}

scale_numbers numbers_of(const roundoffs& r, const reference::kl_error& err, const reference::kl_result& want) {
  return {std::max({r.u_p, r.u_ds, err.sums.u_grad}), r.c_e, want.largest_lse};
}

check_result check_loss(const launch& l, const reference::kl_result& want) {
  element_check check("K8d", "losses");
  const double got = kl_output(l, slot::loss).at(0);
  check.add(slot::loss, {}, std::span(&got, 1), std::span(&want.loss, 1),
            [&](std::size_t) { return limit_of_loss(want); });
  return check.result();
}

std::vector<check_result> check_values(const subject& what, const launch& l, const reference::kl_result& want,
                                       const roundoffs& r, const reference::kl_error& err) {
  std::vector<check_result> checks = check_kl_gradients(what, l, want, r, err);
  checks.push_back(check_loss(l, want));
  return checks;
}

}  // namespace

tensor_view kl_output(const launch& l, slot s) {
  const auto found = l.outputs.find(s);
  if (found == l.outputs.end()) throw suite_error("the launch of a kl case lacks an output");
  return found->second;
}

std::vector<check_result> check_kl_gradients(const subject& what, const launch& l, const reference::kl_result& want,
                                             const roundoffs& r, const reference::kl_error& err) {
  const auto gradients = judged(l, want);
  std::vector<check_result> checks{check_gradient_elements(gradients, err.sums)};
  if (has_independent_values(what.definition))
    if (auto sizes = check_gradient_sizes(gradients, err.sums)) checks.push_back(std::move(*sizes));
  if (auto scales = check_gradient_scales(gradients, err.sums, numbers_of(r, err, want)))
    checks.push_back(std::move(*scales));
  return checks;
}

void scan_detached(value_scan& scan, const launch& outputs, std::int64_t rows, std::int64_t keys) {
  for (const auto& [where, lines] : {std::pair{slot::dq, rows}, std::pair{slot::dk, keys}}) {
    const auto found = outputs.outputs.find(where);
    if (found == outputs.outputs.end()) continue;
    const tensor_view& view = found->second;
    for (std::int64_t line = 0; line < lines; ++line)
      for (std::int64_t head = 0; head < view.desc.shape[1]; ++head)
        scan.expect_zero_bits({where, &view, view.offset(line, head), view.desc.shape[2], {line, head}});
  }
}

reference::kl_inputs kl_inputs_of(const subject& what) {
  reference::kl_inputs in{what.agreed,
                          input(what, slot::q),
                          input(what, slot::k),
                          input(what, slot::q_idx),
                          input(what, slot::k_idx),
                          tokens_first(input(what, slot::ids), what.agreed.asked.in_id_layout),
                          input(what, slot::cu_seqlens_q),
                          input(what, slot::kv_lens),
                          input(what, slot::cu_seqlens_kv)};
  return in;
}

reference::kl_error kl_error_of(const problem& p, const numerics& n) {
  const roundoffs main = resolve(p, n), index = index_roundoffs(p, n);
  const auto backward = backward_error_of(p, main);
  reference::kl_error e;
  e.weight = e.index_weight = backward.weight;
  e.index_weight.per_magnitude = index.n_in * index.u_in + gamma(index.kappa_s, index.u_m_score);
  e.index_weight.per_score = index.u_s;
  e.normaliser = {1, u32, main.c_l, main.declared_l};
  e.mean = gamma(std::int64_t{p.group()} + 2, main.u_m_out);
  e.u_ds = main.u_ds;
  e.omega_ds = backward.omega_ds;
  e.sums = backward.sums;
  return e;
}

loss_limit limit_of_loss(const reference::kl_result& want) {
  return sum_of<3>({{{"teacher", want.loss_teacher},
                     {"student", want.loss_student},
                     {"sums", gamma(want.loss_chain, u32) * want.loss_magnitude}}},
                   second_order);
}

kl_expectation::kl_expectation(const subject& what)
    : what_(what),
      in_(kl_inputs_of(what_)),
      err_(kl_error_of(what.agreed, what.declared)),
      want_(reference::kl(in_, err_)) {}

check_result kl_expectation::scan(const launch& outputs, int launch_index, std::uint64_t poison_seed) const {
  value_scan scan(launch_index, poison_seed, "not exactly 0, though nothing flows there");
  const tensor_view loss = kl_output(outputs, slot::loss);
  const value_scan::span whole{slot::loss, &loss, 0, 1, {}};
  is_all_zero() ? scan.expect_exactly(whole, 0) : scan.expect_finite(whole);
  for (const judged_gradient& g : judged(outputs, want_)) {
    if (!is_all_zero()) {
      scan_gradient(scan, g);
      continue;
    }
    reference::gradient zero(g.want.rows, g.want.heads, g.want.channels);
    scan_gradient(scan, {g.where, zero, g.got});
  }
  scan_detached(scan, outputs, want_.dq_idx.rows, want_.dk_idx.rows);
  return scan.result();
}

std::vector<check_result> kl_expectation::check(const launch& outputs, int launch_index,
                                                std::uint64_t poison_seed) const {
  std::vector<check_result> checks{scan(outputs, launch_index, poison_seed)};
  auto values = check_values(what_, outputs, want_, resolve(what_.agreed, what_.declared), err_);
  if (!std::ranges::all_of(values, &check_result::passed)) {
    const std::string cure = find_cure(outputs);
    for (check_result& c : values)
      if (!c.passed) c.cure = cure;
  }
  for (check_result& c : values) checks.push_back(std::move(c));
  return checks;
}

void kl_expectation::answer(answers& into, const launch& outputs) const {
  into.set(slot::loss, std::vector<std::int64_t>{0}, want_.loss, is_all_zero() ? 0 : limit_of_loss(want_).total);
  for (const judged_gradient& g : judged(outputs, want_))
    for (std::int64_t row = 0; row < g.want.rows; ++row)
      for (std::int64_t head = 0; head < g.want.heads; ++head)
        for (std::int64_t c = 0; c < g.want.channels; ++c) {
          const std::size_t at = g.want.element(row, head, c);
          const bool is_zero = is_all_zero() || g.want.chain[g.want.line(row, head)] == 0;
          const auto index = g.where == slot::dq_idx ? std::vector{row, head, c} : std::vector{row, c};
          into.set(g.where, index, g.want.value[at], is_zero ? 0 : limit_of_gradient(g.want, at, err_.sums).total);
        }
  for (const auto& [where, rows] : {std::pair{slot::dq, want_.dq_idx.rows}, std::pair{slot::dk, want_.dk_idx.rows}}) {
    const std::int64_t heads = where == slot::dq ? what_.agreed.hq : what_.agreed.hkv;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t head = 0; head < heads; ++head)
        for (std::int64_t c = 0; c < what_.agreed.d; ++c) into.set(where, std::vector{row, head, c}, 0, 0);
  }
}

// Every trial is a run of the oracle. Limits grow with the roundoffs, so one run with the coarsest that may be declared
// tells whether any other has to be tried.
std::string kl_expectation::find_cure(const launch& outputs) const {
  const auto passes = [&](const numerics& n) {
    const auto err = kl_error_of(what_.agreed, n);
    const auto checks = check_values(what_, outputs, reference::kl(in_, err), resolve(what_.agreed, n), err);
    return std::ranges::all_of(checks, &check_result::passed);
  };
  const cure_search search(what_, passes);
  numerics coarsest = what_.declared;
  coarsest.ds_operand = what_.agreed.q == fp32 ? tf32 : what_.agreed.q;
  if (what_.agreed.q != fp32) coarsest.truncated |= truncates_ds;
  if (!search.would_pass(coarsest)) return {};
  const cure_search::store_field fields[] = {{"ds_operand", &numerics::ds_operand, truncates_ds}};
  return search.stores(fields);
}

// A fault of the factor of loss and gradients, which is off by so much of itself.
effect kl_expectation::effect_of_factor(double relative) const {
  effect strongest;
  const auto consider = [&](double ratio, const char* id) {
    if (ratio > strongest.ratio) strongest = {ratio, id};
  };
  consider(ratio_to(limit_of_loss(want_).total, relative * want_.loss, 0), "K8d");
  const auto numbers = numbers_of(resolve(what_.agreed, what_.declared), err_, want_);
  for (const reference::gradient* g : {&want_.dq_idx, &want_.dk_idx})
    if (const auto limit = limit_of_scale(*g, err_.sums, numbers)) consider(ratio_to(*limit, relative, 0), "K8c");
  return strongest;
}

std::vector<kl_expectation::sampled> kl_expectation::sample(const perturbable_kl& of) const {
  const reference::gradient& g = want_.dq_idx;
  const auto has_keys = [&](std::int64_t row) {
    const auto line = std::span(g.chain).subspan(g.line(row, 0), static_cast<std::size_t>(g.heads));
    return std::ranges::any_of(line, [](std::int64_t terms) { return terms > 0; });
  };
  // One key is lost among many: of the rows with a next key in their block those of fewest keys.
  kind_of_position few{{}, 3}, unselected{{}, 2}, any;
  for (std::int64_t row = 0; row < g.rows; ++row) {
    if (!has_keys(row)) continue;
    any.positions.push_back(static_cast<std::size_t>(row));
    const auto& at = of.keys().place(row);
    if (at.position + 1 < at.kv_len && (at.position + 1) % what_.agreed.block != 0)
      few.positions.push_back(static_cast<std::size_t>(row));
    if (g.chain[g.line(row, 0)] < std::min(at.position + 1, at.kv_len))
      unselected.positions.push_back(static_cast<std::size_t>(row));
  }
  std::ranges::stable_sort(few.positions, {},
                           [&](std::size_t row) { return of.keys().place(static_cast<std::int64_t>(row)).position; });
  if (few.positions.size() > few.most) few.positions.resize(few.most);
  const kind_of_position kinds[] = {few, unselected, any};
  std::vector<sampled> lines;
  for (const std::size_t at : positions_to_perturb(kinds))
    for (std::int64_t head = 0; head < g.heads; ++head)
      if (auto right = of.line({}, static_cast<std::int64_t>(at), head))
        lines.push_back({static_cast<std::int64_t>(at), head, std::move(*right)});
  return lines;
}

effect kl_expectation::effect_on_rows(perturbation fault, const perturbable_kl& faulty,
                                      std::span<const sampled> lines) const {
  const reference::gradient& g = want_.dq_idx;
  effect strongest;
  double squares = 0, elements = 0;
  for (const sampled& at : lines) {
    elements += static_cast<double>(g.channels);
    const auto wrong = faulty.line(fault, at.row, at.head);
    if (!wrong) continue;
    const std::size_t first = g.element(at.row, at.head, 0);
    for (std::size_t c = 0; c < wrong->size(); ++c) {
      const double off = (*wrong)[c] - at.right[c];
      const double limit = is_all_zero() ? 0 : limit_of_gradient(g, first + c, err_.sums).total;
      if (const double ratio = ratio_to(limit, off, 0); ratio > strongest.ratio)
        strongest = {ratio, is_all_zero() ? "K0" : "K8a"};
      squares += off * off / reference::expected_square(g, first + c, err_.sums);
    }
  }
  if (elements > 0 && !is_all_zero() && has_independent_values(what_.definition) && has_expected_size(g, err_.sums))
    if (const double ratio = std::sqrt(squares / elements) / most_pooled_size; ratio > strongest.ratio)
      strongest = {ratio, "K8b"};
  return strongest;
}

detectability kl_expectation::measure() const {
  const perturbable_kl faulty(in_);
  const auto lines = sample(faulty);
  const auto rows = static_cast<double>(want_.dq_idx.rows), full = static_cast<double>(faulty.rows_with_keys());
  return weakest_of(what_.targets, [&](perturbation fault) {
    switch (fault) {
      case perturbation::mean_of_one_row_less:
        return effect_of_factor(rows > 1 ? 1 / (rows - 1) : 0);
      case perturbation::mean_of_rows_with_keys:
        return effect_of_factor(full > 0 ? rows / full - 1 : 0);
      case perturbation::mean_without_heads:
        return effect_of_factor(what_.agreed.hkv - 1);
      default:
        return effect_on_rows(fault, faulty, lines);
    }
  });
}

}  // namespace msabench::judge
