// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "judge/answers.h"
#include "judge/backward_expectation.h"
#include "judge/cure.h"
#include "judge/error_size.h"
#include "judge/input.h"
#include "reference/rows.h"

namespace msabench::judge {
namespace {

// The smallest normal number of single precision: what a device that flushes subnormals may lose.
constexpr double flushed = 0x1p-126;

bool all_pass(const std::vector<check_result>& checks) { return std::ranges::all_of(checks, &check_result::passed); }

double largest_of(const std::vector<double>& lse) {
  double largest = 0;
  for (const double x : lse)
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  return largest;
}

reference::backward_result oracle(const subject& what, const reference::backward_inputs& in,
                                  const reference::backward_error& err) {
  return reference::attention_backward(name(what.agreed.operation), in, err);
}

std::vector<judged_gradient> judged(const launch& l, const reference::backward_result& want) {
  return {{slot::dq, want.dq, gradient_output(l, slot::dq)},
          {slot::dk, want.dk, gradient_output(l, slot::dk)},
          {slot::dv, want.dv, gradient_output(l, slot::dv)}};
}

// What rounding out to its type leaves of a row's D is one number for each head. It stands in every dq of that head, and in
// every dk of all keys that the row sees: however many elements there are, fewer such numbers than K4b asks rows for have no
// mean square to be held to. P and dS are rounded for each pair anew, and dv has only these.
bool averages_many_roundings(slot where, const reference::backward_result& want) {
  constexpr std::ptrdiff_t fewest = 64;
  return where == slot::dv || std::ranges::count_if(want.dq.chain, [](auto keys) { return keys > 0; }) >= fewest;
}

}  // namespace

reference::backward_inputs backward_inputs_of(const subject& what) {
  reference::backward_inputs in{what.agreed,
                                input(what, slot::q),
                                input(what, slot::k),
                                input(what, slot::v),
                                tokens_first(input(what, slot::ids), what.agreed.asked.in_id_layout),
                                input(what, slot::d_out),
                                input(what, slot::cu_seqlens_q),
                                input(what, slot::kv_lens),
                                input(what, slot::cu_seqlens_kv)};
  return in;
}

reference::backward_error backward_error_of(const problem& p, const roundoffs& r) {
  reference::backward_error e;
  e.weight = {r.n_in * r.u_in + gamma(r.kappa_s, r.u_m_score), r.u_s, r.c_e, 4 * u32, flushed};
  e.products = gamma(std::int64_t{p.d} + 2, r.u_m_out);
  e.u_p = r.u_p;
  e.u_ds = r.u_ds;
  e.u_out = unit_roundoff(p.out);
  e.omega_p = std::max(r.omega_p, flushed);
  e.omega_ds = std::max(r.omega_ds, flushed);
  e.sums = {r.u_m_out,
            r.declared_dq,
            r.declared_dkv,
            unit_roundoff(p.grad),
            p.grad == fp16 ? smallest_subnormal(fp16) / 2 : flushed,
            u32};
  return e;
}

reference::backward_error backward_error_of(const subject& what, const numerics& n) {
  auto e = backward_error_of(what.agreed, resolve(what.agreed, n));
  if (what.definition.family == "carry" && (n.truncated & truncates_p) == 0) e.u_p = 0;
  return e;
}

tensor_view gradient_output(const launch& l, slot s) {
  const auto found = l.outputs.find(s);
  if (found == l.outputs.end()) throw suite_error("the launch of a backward case lacks a gradient");
  return found->second;
}

std::vector<check_result> check_gradient_values(const subject& what, const launch& l,
                                                const reference::backward_result& want, const roundoffs& r,
                                                const reference::backward_error& err) {
  const auto gradients = judged(l, want);
  std::vector<check_result> checks{check_gradient_elements(gradients, err.sums)};
  if (has_independent_values(what.definition)) {
    std::vector<judged_gradient> of_size;
    for (const judged_gradient& g : gradients)
      if (averages_many_roundings(g.where, want)) of_size.push_back(g);
    if (auto sizes = check_gradient_sizes(of_size, err.sums)) checks.push_back(std::move(*sizes));
  }
  const scale_numbers numbers{std::max({r.u_p, r.u_ds, err.sums.u_grad}), r.c_e, largest_of(want.lse)};
  if (auto scales = check_gradient_scales(gradients, err.sums, numbers)) checks.push_back(std::move(*scales));
  return checks;
}

backward_expectation::backward_expectation(const subject& what)
    : what_(what),
      in_(backward_inputs_of(what_)),
      r_(resolve(what.agreed, what.declared)),
      err_(backward_error_of(what, what.declared)),
      want_(oracle(what_, in_, err_)) {}

std::vector<check_result> backward_expectation::check(const launch& outputs, int launch_index,
                                                      std::uint64_t poison_seed) const {
  value_scan scan(launch_index, poison_seed, "not exactly 0, though no row and key have a part in it");
  for (const judged_gradient& g : judged(outputs, want_)) scan_gradient(scan, g);
  std::vector<check_result> values = check_gradient_values(what_, outputs, want_, r_, err_);
  if (!all_pass(values)) {
    const std::string cure = find_cure(outputs);
    for (check_result& c : values)
      if (!c.passed) c.cure = cure;
  }
  std::vector<check_result> checks{scan.result()};
  for (check_result& c : values) checks.push_back(std::move(c));
  return checks;
}

void backward_expectation::answer(answers& into, const launch&) const {
  for (const slot where : {slot::dq, slot::dk, slot::dv}) {
    const reference::gradient& g = want(where);
    for (std::int64_t row = 0; row < g.rows; ++row)
      for (std::int64_t head = 0; head < g.heads; ++head)
        for (std::int64_t c = 0; c < g.channels; ++c) {
          const std::size_t at = g.element(row, head, c);
          const bool is_zero = g.chain[g.line(row, head)] == 0;
          into.set(where, std::vector{row, head, c}, g.value[at],
                   is_zero ? 0 : limit_of_gradient(g, at, err_.sums).total);
        }
  }
}

// Every trial is a run of the oracle. Limits grow with the roundoffs, so one run with the coarsest that may be declared
// tells whether any other has to be tried.
std::string backward_expectation::find_cure(const launch& outputs) const {
  const auto passes = [&](const numerics& n) {
    const roundoffs r = resolve(what_.agreed, n);
    const auto err = backward_error_of(what_, n);
    return all_pass(check_gradient_values(what_, outputs, oracle(what_, in_, err), r, err));
  };
  const cure_search search(what_, passes);
  numerics coarsest = what_.declared;
  coarsest.p_operand = coarsest.ds_operand = what_.agreed.q == fp32 ? tf32 : what_.agreed.q;
  if (what_.agreed.q != fp32) coarsest.truncated |= truncates_p | truncates_ds;
  if (!search.would_pass(coarsest)) return {};
  const cure_search::store_field fields[] = {{"ds_operand", &numerics::ds_operand, truncates_ds},
                                             {"p_operand", &numerics::p_operand, truncates_p}};
  return search.stores(fields);
}

const reference::gradient& backward_expectation::want(slot where) const {
  return where == slot::dq ? want_.dq : where == slot::dk ? want_.dk : want_.dv;
}

// A line of an output that faults are tried on.
struct backward_expectation::sampled {
  slot where;
  std::int64_t line, head;
};

// The three rows of fewest keys that have a next one in their own block: it is lost among many.
std::vector<std::size_t> backward_expectation::rows_before_a_key() const {
  const reference::row_map places(in_.cu_seqlens_q, in_.kv_lens);
  std::vector<std::size_t> rows;
  for (std::int64_t row = 0; row < places.total_rows(); ++row) {
    const std::int64_t next = places[row].position + 1;
    if (next > 0 && next < places[row].kv_len && next % what_.agreed.block != 0)
      rows.push_back(static_cast<std::size_t>(row));
  }
  std::ranges::stable_sort(rows, {}, [&](std::size_t row) { return places[static_cast<std::int64_t>(row)].position; });
  if (rows.size() > 3) rows.resize(3);
  return rows;
}

std::vector<backward_expectation::sampled> backward_expectation::sample() const {
  std::vector<sampled> lines;
  for (const slot where : {slot::dq, slot::dk}) {
    const reference::gradient& g = want(where);
    kind_of_position any{{}, most_perturbed_rows}, before_next{{}, 3};
    for (std::int64_t row = 0; row < g.rows; ++row)
      if (std::ranges::any_of(std::span(g.chain).subspan(g.line(row, 0), static_cast<std::size_t>(g.heads)),
                              [](std::int64_t n) { return n > 0; }))
        any.positions.push_back(static_cast<std::size_t>(row));
    if (where == slot::dq) before_next.positions = rows_before_a_key();
    const kind_of_position kinds[] = {before_next, any};
    for (const std::size_t at : positions_to_perturb(kinds)) {
      const auto row = static_cast<std::int64_t>(at);
      // One query head of each group, another one from row to row.
      const std::int64_t heads = where == slot::dq ? what_.agreed.group() : 1;
      for (std::int64_t head = row % heads; head < g.heads; head += heads) {
        if (g.chain[g.line(row, head)] == 0) continue;
        lines.push_back({where, row, head});
        if (where == slot::dk) lines.push_back({slot::dv, row, head});
      }
    }
  }
  return lines;
}

effect backward_expectation::effect_of(perturbation fault, std::span<const sampled> lines) const {
  const perturbable_gradients faulty(what_, in_, want_);
  effect strongest;
  const auto consider = [&](double ratio, const char* id) {
    if (ratio > strongest.ratio) strongest = {ratio, id};
  };
  for (const slot where : {slot::dq, slot::dk, slot::dv}) {
    const reference::gradient& g = want(where);
    double squares = 0, elements = 0;
    for (const sampled& at : lines) {
      if (at.where != where) continue;
      elements += static_cast<double>(g.channels);
      const auto change = faulty.change(fault, where, at.line, at.head);
      if (!change) continue;
      const std::size_t first = g.element(at.line, at.head, 0);
      for (std::size_t c = 0; c < change->size(); ++c) {
        const double off = (*change)[c];
        consider(ratio_to(limit_of_gradient(g, first + c, err_.sums).total, off, 0), "K8a");
        squares += off * off / reference::expected_square(g, first + c, err_.sums);
      }
    }
    if (elements > 0 && has_independent_values(what_.definition) && averages_many_roundings(where, want_) &&
        has_expected_size(g, err_.sums))
      consider(std::sqrt(squares / elements) / most_pooled_size, "K8b");
  }
  return strongest;
}

detectability backward_expectation::measure() const {
  const auto lines = sample();
  return weakest_of(what_.targets, [&](perturbation fault) { return effect_of(fault, lines); });
}

}  // namespace msabench::judge
