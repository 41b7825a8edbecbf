// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/divergence.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/divergence.cpp"
#include <hwy/foreach_target.h>
// After it, so that the tiles are those of the target.
#include <hwy/contrib/math/math-inl.h>

#include "kernels/cpu/exponentials-inl.h"
#include "kernels/cpu/tiles-inl.h"

#include <algorithm>
#include <cmath>
#include <numbers>

HWY_BEFORE_NAMESPACE();
namespace msabench::cpu::HWY_NAMESPACE {

void score_block(const stored_rows& keys, const scored_tokens& tokens, float* panel) {
  lookahead none;
  for (int first = 0; first < keys.count; first += panel_lanes) {
    const int columns = std::min(panel_lanes, keys.count - first);
    with_storage<pack_columns>(keys.type, keys.at + first, columns, keys.d, panel, nullptr, 0);
    for (std::int32_t t = 0; t < tokens.tokens; ++t) {
      multiply({tokens.left[t], keys.d}, tokens.rows, panel, keys.d, columns, false,
               {tokens.to[t] + first, tokens.stride}, none);
    }
  }
}

void add_block(const stored_rows& keys, const weighted_tokens& tokens, float* panel) {
  lookahead none;
  for (int first = 0; first < keys.d; first += panel_lanes) {
    const int columns = std::min(panel_lanes, keys.d - first);
    with_storage<pack_rows>(keys.type, keys.at, keys.count, first, columns, panel);
    for (std::int32_t t = 0; t < tokens.tokens; ++t) {
      multiply({tokens.factors[t], 0}, 1, panel, keys.count, columns, true, {tokens.sums[t] + first, 0}, none);
    }
  }
}

void add_rows(const stored_rows& rows, const float* const* factors, std::int32_t keys, float* turned, float* panel,
              float* sums) {
  lookahead none;
  const std::int64_t stride = padded_columns(rows.d);
  for (int row = 0; row < rows.count; row += panel_lanes) {
    const int count = std::min(panel_lanes, rows.count - row);
    // Columns of a panel, rows one after the other, are a matrix in rows.
    pack_columns<fp32_storage>::call(reinterpret_cast<const char* const*>(factors + row), count, keys, turned, nullptr,
                                     0);
    for (int first = 0; first < rows.d; first += panel_lanes) {
      const int columns = std::min(panel_lanes, rows.d - first);
      with_storage<pack_rows>(rows.type, rows.at + row, count, first, columns, panel);
      multiply({turned, vectors_of(count) * lanes}, keys, panel, count, columns, true, {sums + first, stride}, none);
    }
  }
}

/// Sums of fp32 are no longer than this; what they give is added in double.
constexpr int segment = 2048;

/// Natural logarithm of the sum of 2^(score * scale), in units of base-2 exponents: reference and sum.
struct normaliser {
  float reference;  ///< greatest score * scale, whole
  double sum;
};

/// Weights in place of one head's scores.
normaliser weigh(float* scores, std::int64_t count, float scale) {
  float greatest = -std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < count; i += segment) {
    const extremes found = extremes_of(scores + i, static_cast<int>(std::min<std::int64_t>(segment, count - i)));
    greatest = std::max(greatest, std::max(found.greatest * scale, found.least * scale));
  }
  normaliser n{std::ceil(greatest), 0};
  for (std::int64_t i = 0; i < count; i += segment)
    n.sum += static_cast<double>(exponentials<false>(
        scores + i, static_cast<int>(std::min<std::int64_t>(segment, count - i)), scale, n.reference));
  return n;
}

/// The sum of P ln P - P * log_student over some keys: in double, whose sums of a million terms are still exact enough.
double sum_of_terms(const float* teacher, const float* log_student, std::int64_t count) {
  const hn::ScalableTag<double> wide;
  const hn::Rebind<float, hn::ScalableTag<double>> narrow;
  const auto step = static_cast<std::int64_t>(hn::Lanes(wide));
  auto sum = hn::Zero(wide);
  for (std::int64_t j = 0; j < count; j += step) {
    const auto present = static_cast<std::size_t>(std::min(step, count - j));
    const auto p = hn::PromoteTo(wide, hn::IfThenElseZero(hn::FirstN(narrow, present), hn::LoadU(narrow, teacher + j)));
    const auto t = hn::PromoteTo(wide, hn::LoadU(narrow, log_student + j));
    const auto positive = hn::Gt(p, hn::Zero(wide));  // 0 ln 0 = 0
    const auto term = hn::Mul(p, hn::Sub(hn::Log(wide, hn::IfThenElse(positive, p, hn::Set(wide, 1.0))), t));
    sum = hn::Add(sum, hn::IfThenElseZero(positive, term));
  }
  return hn::GetLane(hn::SumOfLanes(wide, sum));
}

double compare_row(const divergence_row& row, float* differences) {
  const float_tag d;
  const std::int64_t count = row.count;
  // The teacher: the mean of the heads' weights, in place of the first head's.
  for (std::int32_t head = 0; head < row.heads; ++head) {
    float* const weights = row.teacher + head * row.stride;
    const normaliser n = weigh(weights, count, row.teacher_scale);
    const auto share = hn::Set(d, static_cast<float>(1 / (n.sum * row.heads)));
    for (std::int64_t j = 0; j < count; j += lanes) {
      const auto part = hn::Mul(hn::LoadU(d, weights + j), share);
      hn::StoreU(head == 0 ? part : hn::Add(hn::LoadU(d, row.teacher + j), part), d, row.teacher + j);
    }
  }
  // The student: logarithms of its weights in place of its scores.
  std::copy_n(row.student, count, differences);
  const normaliser n = weigh(differences, count, row.student_scale);
  const double log_sum = n.reference + std::log2(n.sum);
  const auto factor = hn::Set(d, row.student_scale), subtracted = hn::Set(d, static_cast<float>(log_sum));
  const auto natural = hn::Set(d, static_cast<float>(std::numbers::ln2));
  const auto share = hn::Set(d, static_cast<float>(1 / n.sum));
  for (std::int64_t j = 0; j < count; j += lanes) {
    const auto weight = hn::Mul(hn::LoadU(d, differences + j), share);
    hn::StoreU(hn::Sub(weight, hn::LoadU(d, row.teacher + j)), d, differences + j);
    const auto exponent = hn::MulSub(hn::LoadU(d, row.student + j), factor, subtracted);
    hn::StoreU(hn::Mul(exponent, natural), d, row.student + j);
  }
  return sum_of_terms(row.teacher, row.student, count);
}

std::int64_t normaliser_chain() { return segment / lanes + lanes; }

std::int64_t rows_of_a_step() { return panel_lanes; }

}  // namespace msabench::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msabench::cpu {

HWY_EXPORT(score_block);
HWY_EXPORT(add_block);
HWY_EXPORT(add_rows);
HWY_EXPORT(compare_row);
HWY_EXPORT(normaliser_chain);
HWY_EXPORT(rows_of_a_step);

void score_block(const stored_rows& keys, const scored_tokens& tokens, float* panel) {
  HWY_DYNAMIC_DISPATCH(score_block)(keys, tokens, panel);
}

void add_block(const stored_rows& keys, const weighted_tokens& tokens, float* panel) {
  HWY_DYNAMIC_DISPATCH(add_block)(keys, tokens, panel);
}

void add_rows(const stored_rows& rows, const float* const* factors, std::int32_t keys, float* turned, float* panel,
              float* sums) {
  HWY_DYNAMIC_DISPATCH(add_rows)(rows, factors, keys, turned, panel, sums);
}

double compare_row(const divergence_row& row, float* differences) {
  return HWY_DYNAMIC_DISPATCH(compare_row)(row, differences);
}

std::int64_t normaliser_chain() { return HWY_DYNAMIC_DISPATCH(normaliser_chain)(); }
std::int64_t rows_of_a_step() { return HWY_DYNAMIC_DISPATCH(rows_of_a_step)(); }

}  // namespace msabench::cpu
#endif
