// SPDX-License-Identifier: Apache-2.0
#include "judge/value_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/dtype.h"
#include "core/poison.h"

namespace msabench::judge {

std::vector<std::string> value_scan::axes_of(slot where) {
  switch (where) {
    case slot::out:
    case slot::q_rope:
    case slot::k_rope:
      return {"row", "head", "channel"};
    case slot::lse:
      return {"row", "head"};
    case slot::scores:
      return {"index head", "row", "block"};
    case slot::lse_idx:
      return {"row", "index head"};
    case slot::dq:
      return {"row", "head", "channel"};
    case slot::dk:
    case slot::dv:
      return {"key", "KV head", "channel"};
    case slot::q_idx_rope:
    case slot::dq_idx:
      return {"row", "index head", "channel"};
    case slot::dk_idx:
      return {"key", "channel"};
    case slot::loss:
      return {"element"};
    case slot::k_idx_rope:
      return {"row", "channel"};
    case slot::positions:
      return {"row", "axis"};
    case slot::cu_segments:
      return {"segment"};
    case slot::ids:
      return {"row", "index head", "slot"};
    default:
      return {};
  }
}

void value_scan::note(finding& f, const span& s, std::int64_t i, double got, double want) {
  if (f.count++ > 0) return;
  f.first = {s.where, s.index, axes_of(s.where), got, want};
  if (s.index.size() < f.first.axes.size())
    f.first.index.push_back(i);
  else
    f.first.index.back() += i;
}

void value_scan::expect_finite(const span& s) {
  buffer_.resize(static_cast<std::size_t>(s.count));
  widen(s.view->data, s.view->desc.type, s.offset, s.count, buffer_.data());
  if (!std::ranges::all_of(buffer_, [](double x) { return std::isfinite(x); })) inspect(s, false, 0);
}

void value_scan::expect_integers(const span& s) {
  const auto* values = static_cast<const std::int32_t*>(s.view->data);
  for (std::int64_t i = 0; i < s.count; ++i)
    if (is_poison(*s.view, s.offset + i, launch_, seed_)) note(unwritten_, s, i, values[s.offset + i], 0);
}

bool value_scan::is_untouched(const tensor_view& view, std::int64_t rows) const {
  const auto& shape = view.desc.shape;
  const std::int64_t heads = shape.size() == 3 ? shape[1] : 1, last = shape.size() == 1 ? 1 : shape.back();
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t first = shape.size() == 3 ? view.offset(row, head) : view.offset(row);
      for (std::int64_t i = 0; i < last; ++i)
        if (!is_poison(view, first + i, launch_, seed_)) return false;
    }
  return true;
}

void value_scan::expect_written(const span& s, bool nan_is_a_value) {
  buffer_.resize(static_cast<std::size_t>(s.count));
  widen(s.view->data, s.view->desc.type, s.offset, s.count, buffer_.data());
  for (std::int64_t i = 0; i < s.count; ++i) {
    const double got = buffer_[static_cast<std::size_t>(i)];
    // Poison is NaN in every format.
    if (!std::isnan(got)) continue;
    if (is_poison(*s.view, s.offset + i, launch_, seed_))
      note(unwritten_, s, i, got, got);
    else if (!nan_is_a_value)
      note(nonfinite_, s, i, got, got);
  }
}

void value_scan::expect_exactly(const span& s, double value) {
  buffer_.resize(static_cast<std::size_t>(s.count));
  widen(s.view->data, s.view->desc.type, s.offset, s.count, buffer_.data());
  if (!std::ranges::all_of(buffer_, [&](double x) { return x == value; })) inspect(s, true, value);
}

void value_scan::expect_zero_bits(const span& s) {
  expect_exactly(s, 0);
  for (std::int64_t i = 0; i < s.count; ++i)
    if (const double got = buffer_[static_cast<std::size_t>(i)]; got == 0 && std::signbit(got))
      note(inexact_, s, i, got, 0);
}

void value_scan::inspect(const span& s, bool exact, double value) {
  for (std::int64_t i = 0; i < s.count; ++i) {
    const double got = buffer_[static_cast<std::size_t>(i)];
    if (exact ? got == value : std::isfinite(got)) continue;
    const double want = exact ? value : std::numeric_limits<double>::quiet_NaN();
    if (is_poison(*s.view, s.offset + i, launch_, seed_))
      note(unwritten_, s, i, got, want);
    else if (std::isnan(got) || !exact)
      note(nonfinite_, s, i, got, want);
    else
      note(inexact_, s, i, got, want);
  }
}

check_result value_scan::result() const {
  check_result c;
  c.id = "K0";
  c.unit = "elements";
  const auto report = [&](const finding& f, fail_kind kind, std::string_view what) {
    c.kind = kind;
    c.value = static_cast<double>(f.count);
    c.worst = f.first;
    c.note = fmt::format("{} element{} {}", f.count, f.count == 1 ? "" : "s", what);
  };
  if (unwritten_.count > 0)
    report(unwritten_, fail_kind::contract, "never written");
  else if (nonfinite_.count > 0)
    report(nonfinite_, fail_kind::nonfinite, "not finite");
  else if (inexact_.count > 0)
    report(inexact_, fail_kind::numeric, exact_);
  else
    c.passed = true;
  return c;
}

}  // namespace msabench::judge
