// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "core/operator_table.h"
#include "host/executor.h"

namespace msabench {
namespace {

constexpr std::array<std::string_view, 5> order_names = {"ascending", "score", "local_last", "any", "none"};
constexpr std::array<std::string_view, 2> layout_names = {"[T,H,k]", "[H,T,k]"};
constexpr std::array<std::string_view, 3> form_names = {"exact", "short", "lenient"};
constexpr std::array<std::string_view, 2> unit_names = {"scaled", "raw"};
constexpr std::array<std::string_view, 3> fill_names = {"value", "sentinel", "unwritten"};

bool has_slot(const problem& p, slot where, direction dir) {
  return std::ranges::any_of(slots_of(p.operation), [&](const slot_rule& rule) {
    return rule.where == where && rule.dir == dir && present(rule, p);
  });
}

template <class Enum, std::size_t N>
void require_canonical(std::string& refused, std::string_view field, Enum value,
                       const std::array<std::string_view, N>& names) {
  if (!refused.empty() || value == Enum{}) return;
  refused = fmt::format("profile field {} = {} is not converted by this version", field,
                        names.at(static_cast<std::size_t>(value)));
}

// Why the host can't work with this answer; empty if it can. A field counts where the operator has the tensor that it
// is about.
std::string refusal(const problem& asked, const profile& answer) {
  std::string refused;
  if (has_slot(asked, slot::ids, direction::in)) {
    if (answer.in_id_form < asked.asked.in_id_form)
      return fmt::format("takes ids in form {}, the case has them in form {}",
                         form_names.at(static_cast<std::size_t>(answer.in_id_form)),
                         form_names.at(static_cast<std::size_t>(asked.asked.in_id_form)));
    // Any order is what the host's ascending one is, too.
    if (answer.in_id_order != id_order::any) require_canonical(refused, "in_id_order", answer.in_id_order, order_names);
    require_canonical(refused, "in_id_layout", answer.in_id_layout, layout_names);
  }
  if (has_slot(asked, slot::ids, direction::out)) {
    // msa may keep its ids to itself.
    if (asked.operation != op::msa || answer.out_id_order != id_order::none)
      require_canonical(refused, "out_id_order", answer.out_id_order, order_names);
    require_canonical(refused, "out_id_layout", answer.out_id_layout, layout_names);
  }
  // Scores are judged as they are emitted; those of msa nobody looks at.
  if (asked.operation != op::score && has_slot(asked, slot::scores, direction::out)) {
    require_canonical(refused, "score_unit", answer.unit, unit_names);
    require_canonical(refused, "score_own", answer.score_own, fill_names);
    require_canonical(refused, "score_tail", answer.score_tail, fill_names);
  }
  return refused;
}

std::string_view layout_name(page_layout l) {
  return l == page_layout::contiguous ? "contiguous" : l == page_layout::paged ? "paged" : "fused";
}

}  // namespace

agreement negotiate(executor& on, const problem& wanted) {
  agreement result;
  std::vector<page_layout> offers = {wanted.layout};
  if (wanted.layout == page_layout::paged) offers.push_back(page_layout::fused);
  std::string earlier;
  for (const page_layout layout : offers) {
    result.agreed = wanted;
    result.agreed.layout = layout;
    result.answer = on.query(result.agreed);
    if (result.answer.result != outcome::unsupported) break;
    // The reason that counts is often the first one: the second offer may be refused for its layout alone.
    std::string& text = result.answer.message;
    if (!earlier.empty() && text != earlier)
      text = fmt::format("{} ({}); {} ({})", earlier, layout_name(offers.front()), text, layout_name(layout));
    earlier = result.answer.message;
  }
  if (!result.answer.answered) return result;
  result.refused = refusal(result.agreed, result.answer.answered->delivers);
  result.agreed.asked = result.answer.answered->delivers;
  return result;
}

void adapt_outputs(const profile& delivered, launch& l) {
  const auto at = l.outputs.find(slot::lse);
  if (delivered.lse != lse_form::base2 || at == l.outputs.end() || at->second.desc.type != fp32 || !l.memory) return;
  auto copy = std::make_shared<std::vector<std::byte>>(*l.memory);
  for (auto& [where, view] : l.outputs)
    if (view.data) view.data = copy->data() + (static_cast<const std::byte*>(view.data) - l.memory->data());
  const tensor_view& lse = at->second;
  std::byte* values = copy->data() + (static_cast<const std::byte*>(lse.data) - copy->data());
  for (std::int64_t i = 0; i < lse.desc.span_elements(); ++i) {
    float base2 = 0;
    std::memcpy(&base2, values + i * 4, sizeof base2);
    // What was not written is a NaN whose bits say so, and must stay it.
    if (std::isnan(base2)) continue;
    const auto natural = static_cast<float>(static_cast<double>(base2) * std::numbers::ln2);
    std::memcpy(values + i * 4, &natural, sizeof natural);
  }
  l.memory = std::move(copy);
}

}  // namespace msabench
