// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "core/operator_table.h"
#include "host/executor.h"

namespace msabench {
namespace {

constexpr std::array<std::string_view, 3> form_names = {"exact", "short", "lenient"};

bool has_slot(const problem& p, slot where, direction dir) {
  return std::ranges::any_of(slots_of(p.operation), [&](const slot_rule& rule) {
    return rule.where == where && rule.dir == dir && present(rule, p);
  });
}

// An output that the operator has for nothing else.
bool is_due(const problem& p, slot where) {
  return std::ranges::any_of(slots_of(p.operation), [&](const slot_rule& rule) {
    return rule.where == where && rule.dir == direction::out && !rule.optional;
  });
}

// Why the host can't work with this answer; empty if it can. A field counts where the operator has the tensor that it
// is about. Orders and layouts of ids are converted where inputs are made and outputs judged, which know the profile.
std::string refusal(const problem& asked, const profile& answer) {
  if (has_slot(asked, slot::ids, direction::in) && answer.in_id_form < asked.asked.in_id_form)
    return fmt::format("takes ids in form {}, the case has them in form {}",
                       form_names.at(static_cast<std::size_t>(answer.in_id_form)),
                       form_names.at(static_cast<std::size_t>(asked.asked.in_id_form)));
  if (answer.out_id_order == id_order::none && is_due(asked, slot::ids))
    return fmt::format("profile field out_id_order = none: ids are what {} is asked for", name(asked.operation));
  if (answer.lse == lse_form::none && is_due(asked, slot::lse))
    return fmt::format("profile field lse = none: {} is asked for lse too", name(asked.operation));
  return {};
}

std::string_view layout_name(page_layout l) {
  return l == page_layout::contiguous ? "contiguous" : l == page_layout::paged ? "paged" : "fused";
}

// Caches as a list of slots, one for each token: as many as the pages have.
problem slot_addressed(const problem& paged) {
  problem slots = paged;
  slots.pool_pages *= paged.page_size;
  slots.page_size = 1;
  return slots;
}

problem fused(const problem& apart) {
  problem halves = apart;
  halves.layout = page_layout::fused;
  return halves;
}

// What is offered, in this order. Slots only in the place of the usual pages, which are as large as a block: another size
// is what a case is about.
std::vector<problem> offers_of(const problem& wanted) {
  if (wanted.layout != page_layout::paged) return {wanted};
  const problem halves = fused(wanted);
  if (wanted.page_size != wanted.block || wanted.page_size == 1) return {wanted, halves};
  return {wanted, halves, slot_addressed(wanted), slot_addressed(halves)};
}

}  // namespace

agreement negotiate(executor& on, const problem& wanted) {
  agreement result;
  std::string earlier;
  for (const problem& offer : offers_of(wanted)) {
    result.agreed = offer;
    result.answer = on.query(offer);
    if (result.answer.result != outcome::unsupported) break;
    std::string& text = result.answer.message;
    // The reason that counts is often the first one: a later offer may be refused for its layout alone.
    if (offer.page_size != wanted.page_size)
      text = earlier;
    else if (!earlier.empty() && text != earlier)
      text = fmt::format("{} ({}); {} ({})", earlier, layout_name(wanted.layout), text, layout_name(offer.layout));
    earlier = text;
  }
  if (!result.answer.answered) return result;
  result.refused = refusal(result.agreed, result.answer.answered->delivers);
  result.agreed.asked = result.answer.answered->delivers;
  return result;
}

namespace {

void make_natural(std::byte* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    float base2 = 0;
    std::memcpy(&base2, values + i * 4, sizeof base2);
    // What was not written is a NaN whose bits say so, and must stay it.
    if (std::isnan(base2)) continue;
    const auto natural = static_cast<float>(static_cast<double>(base2) * std::numbers::ln2);
    std::memcpy(values + i * 4, &natural, sizeof natural);
  }
}

}  // namespace

void adapt_outputs(const profile& delivered, launch& l) {
  const auto is_log = [](const auto& output) {
    return (output.first == slot::lse || output.first == slot::lse_idx) && output.second.desc.type == fp32;
  };
  if (delivered.lse != lse_form::base2 || !l.memory || std::ranges::none_of(l.outputs, is_log)) return;
  auto copy = std::make_shared<std::vector<std::byte>>(*l.memory);
  for (auto& [where, view] : l.outputs)
    if (view.data) view.data = copy->data() + (static_cast<const std::byte*>(view.data) - l.memory->data());
  for (auto& output : l.outputs)
    if (is_log(output) && output.second.data)
      make_natural(copy->data() + (static_cast<const std::byte*>(output.second.data) - copy->data()),
                   output.second.desc.span_elements());
  l.memory = std::move(copy);
}

}  // namespace msabench
