// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/dtype.h"
#include "core/error.h"
#include "judge/answers.h"
#include "judge/detectability.h"
#include "judge/limits.h"
#include "judge/score_expectation.h"
#include "judge/value_scan.h"

namespace msabench::judge {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Enough to tell an honest declaration from none.
constexpr std::size_t scores_tried_for_cure = 32;

const tensor_view& scores_of(const launch& l) {
  const auto found = l.outputs.find(slot::scores);
  if (found == l.outputs.end() || found->second.desc.shape.size() != 3)
    throw suite_error("the launch of a score case has no tensor scores");
  return found->second;
}

// NaN ranks as -inf.
double rank_of(double score) { return std::isnan(score) ? -infinity : score; }

}  // namespace

double judged_score::limit() const {
  const double end = got > want ? hi - want : want - lo;
  return std::isnan(end) ? 0 : end;  // of an infinite score, from which nothing differs
}

double judged_score::ratio() const {
  const double seen = rank_of(got), due = rank_of(want);
  if (seen == due) return 0;
  const double error = std::abs(seen - due), end = seen > due ? hi - due : due - lo;
  const bool inside = lo <= seen && seen <= hi;
  const double ratio = std::isinf(error) || std::isinf(end) || !(end > 0) ? (inside ? 0 : infinity) : error / end;
  return inside ? std::min(ratio, 1.0) : std::max(ratio, std::nextafter(1.0, 2.0));
}

score_expectation::score_expectation(const subject& what, std::span<const std::int64_t> rows)
    : what_(what),
      in_(score_inputs_of(what_)),
      map_(in_.cu_seqlens_q, in_.kv_lens),
      model_(interval_model_of(what.agreed, what.delivers, what.declared)),
      rows_(rows.begin(), rows.end()),
      want_(reference::score(in_, rows, model_)) {}

bool score_expectation::has_value(std::int64_t block, std::int64_t visible) const {
  if (block >= visible) return what_.delivers.score_tail == score_fill::value;
  return block + 1 < visible || what_.delivers.score_own == score_fill::value;
}

check_result score_expectation::check_written(const tensor_view& scores, int launch_index,
                                              std::uint64_t poison_seed) const {
  value_scan scan(launch_index, poison_seed, "of blocks without a visible key not exactly -inf");
  const profile& f = what_.delivers;
  const std::int64_t columns = scores.desc.shape[2];
  for (std::int64_t row = 0; row < map_.total_rows(); ++row) {
    const std::int64_t visible = map_.visible_blocks(row, what_.agreed.block);
    if (visible == 0 && f.empty_row == empty_form::undefined) continue;
    if (visible > columns) throw suite_error("a row sees more blocks than it has scores");
    for (std::int64_t head = 0; head < what_.agreed.hkv; ++head) {
      const auto span = [&](std::int64_t first, std::int64_t end) {
        return value_scan::span{
            slot::scores, &scores, scores.offset(head, row, first), end - first, {head, row, first}};
      };
      const std::int64_t own = std::max<std::int64_t>(0, visible - 1);
      scan.expect_written(span(0, own), f.nan_score == nan_policy::propagate);
      if (visible > 0 && f.score_own != score_fill::unwritten)
        scan.expect_written(span(own, visible),
                            f.nan_score == nan_policy::propagate || f.score_own == score_fill::sentinel);
      if (f.score_tail == score_fill::value) scan.expect_exactly(span(visible, columns), -infinity);
      if (f.score_tail == score_fill::sentinel) scan.expect_written(span(visible, columns), true);
    }
  }
  return scan.result();
}

judged_score score_expectation::judge(const reference::score_row& want, std::int64_t block, double got) const {
  const auto b = static_cast<std::size_t>(block);
  // A negative unit turns an interval around.
  const double one = model_.unit * want.lo[b], other = model_.unit * want.hi[b];
  return {want.row, want.head, block, got, model_.unit * want.value[b], std::min(one, other), std::max(one, other)};
}

// What each declared number contributes at the key that carries the block.
std::vector<std::pair<std::string, double>> score_expectation::terms_of(const judged_score& worst) const {
  const roundoffs r = index_roundoffs(what_.agreed, what_.declared);
  for (const auto& k : index_probe(in_).keys(worst.row, worst.head, worst.block, false)) {
    if (!(model_.unit * k.score == worst.want) || std::isinf(k.score)) continue;
    const double unit = std::abs(model_.unit);
    const std::pair<std::string_view, double> terms[] = {
        {"operand", unit * r.n_in * r.u_in * k.magnitude},
        {"score_acc", unit * gamma(r.kappa_s, r.u_m_score) * k.magnitude},
        {"score_store", unit * r.u_s * std::abs(k.score)}};
    return listed(terms, std::size(terms));
  }
  return {};
}

check_result score_expectation::check_values(const tensor_view& scores) const {
  check_result c;
  c.id = "K1";
  c.unit = "score";
  judged_score worst;
  double worst_ratio = -1;
  std::vector<judged_score> failing;
  std::int64_t failing_count = 0;
  for (const auto& want : want_) {
    const auto visible = std::ssize(want.value);
    for (std::int64_t block = 0; block < visible; ++block) {
      if (!has_value(block, visible)) continue;
      const judged_score s = judge(want, block, scores.at(want.head, want.row, block));
      const double ratio = s.ratio();
      if (ratio > worst_ratio) {
        worst_ratio = ratio;
        worst = s;
      }
      if (ratio <= 1) continue;
      ++failing_count;
      if (failing.size() < scores_tried_for_cure) failing.push_back(s);
    }
  }
  c.passed = failing_count == 0;
  if (worst_ratio >= 0) {
    c.worst = {
        slot::scores, {worst.head, worst.row, worst.block}, value_scan::axes_of(slot::scores), worst.got, worst.want};
    const double error = std::abs(worst.got - worst.want);
    c.value = std::isfinite(error) ? error : worst_ratio > 1 ? unbounded_effect : 0;
    c.limit = worst.limit();
    c.terms = terms_of(worst);
  }
  if (!c.passed) {
    c.kind = std::isnan(worst.got) ? fail_kind::nonfinite : fail_kind::numeric;
    if (std::ranges::none_of(failing, [&](const judged_score& s) {
          return s.row == worst.row && s.head == worst.head && s.block == worst.block;
        }))
      failing.push_back(worst);
    c.named = name_score_fault(in_, worst);
    c.cure = find_score_cure(what_, in_, failing);
    c.note = fmt::format("{} scores lie outside of their intervals", failing_count);
  }
  return c;
}

std::vector<check_result> score_expectation::check(const launch& outputs, int launch_index,
                                                   std::uint64_t poison_seed) const {
  const tensor_view& scores = scores_of(outputs);
  return {check_written(scores, launch_index, poison_seed), check_values(scores)};
}

detectability score_expectation::measure() const {
  const index_probe probe(in_);
  const auto sampled = rows_to_perturb(map_, rows_, what_.agreed);
  const auto hidden = rows_with_hidden_keys(map_, rows_, what_.agreed);
  const auto heads = static_cast<std::size_t>(what_.agreed.hi);
  const auto of_own_block = [](perturbation fault) {
    return fault == perturbation::mask_after_max || fault == perturbation::key_past_diagonal;
  };
  // An own block that is emitted as a sentinel carries no score that such a fault could change.
  std::vector<perturbation> targets = what_.targets;
  if (what_.delivers.score_own != score_fill::value) std::erase_if(targets, of_own_block);
  return weakest_of(targets, [&](perturbation fault) {
    effect strongest, of_lone_keys;
    for (const std::size_t at : of_own_block(fault) ? hidden : sampled)
      for (std::size_t head = 0; head < heads; ++head) {
        const auto& want = want_[at * heads + head];
        const auto visible = std::ssize(want.value);
        for (const std::int64_t block :
             {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, visible / 2, visible - 1}) {
          if (block < 0 || block >= visible || !has_value(block, visible)) continue;
          const auto perturbed = probe.apply(fault, want.row, want.head, block);
          if (!perturbed) continue;
          const double ratio = judge(want, block, model_.unit * *perturbed).ratio();
          // That a block's only key is missed anyone would see.
          effect& into = *perturbed == -infinity ? of_lone_keys : strongest;
          if (ratio > into.ratio) into = {ratio, "K1"};
        }
      }
    return strongest.ratio > 0 ? strongest : of_lone_keys;
  });
}

void score_expectation::answer(answers& into, const launch& outputs) const {
  const tensor_view& scores = scores_of(outputs);
  for (const auto& row : want_) {
    const auto visible = std::ssize(row.value);
    for (std::int64_t block = 0; block < visible; ++block) {
      if (!has_value(block, visible)) continue;
      const judged_score s = judge(row, block, scores.at(row.head, row.row, block));
      into.set(slot::scores, std::vector{row.head, row.row, block}, s.want, s.limit());
    }
  }
}

}  // namespace msabench::judge
