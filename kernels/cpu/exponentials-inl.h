// SPDX-License-Identifier: Apache-2.0
// Weights of a row from its scores. Included once per target of Highway's run-time dispatch; everything is in that target's
// namespace.

#if defined(MSABENCH_KERNELS_CPU_EXPONENTIALS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MSABENCH_KERNELS_CPU_EXPONENTIALS_INL_H
#undef MSABENCH_KERNELS_CPU_EXPONENTIALS_INL_H
#else
#define MSABENCH_KERNELS_CPU_EXPONENTIALS_INL_H
#endif

#include "kernels/cpu/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace msabench::cpu::HWY_NAMESPACE {

/// Exponents down to which 2^x is a normal number, whatever the rounding of x.
constexpr float least_normal = -125.0f;

/// 2^x for x <= 1, within 2^-22 of it: a minimax polynomial on [-1/2, 1/2] (2^-28.5), then exact powers: one where no x is
/// below least_normal; otherwise two, so that results below the normal range are rounded once. Whole numbers give exact
/// powers, -infinity gives 0.
template <bool all_normal>
HWY_INLINE float_vector exp2(float_vector x) {
  const float_tag d;
  const hn::RebindToSigned<float_tag> integers;
  if constexpr (!all_normal) x = hn::Max(x, hn::Set(d, -160.0f));
  // Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits.
  const auto magic = hn::Set(d, 0x1.8p23f);
  const auto shifted = hn::Add(x, magic);
  const auto f = hn::Sub(x, hn::Sub(shifted, magic));
  auto p = hn::Set(d, 1.559467816132662e-4f);
  p = hn::MulAdd(p, f, hn::Set(d, 1.340664390235176e-3f));
  p = hn::MulAdd(p, f, hn::Set(d, 9.617692972993062e-3f));
  p = hn::MulAdd(p, f, hn::Set(d, 5.550310551013797e-2f));
  p = hn::MulAdd(p, f, hn::Set(d, 2.402265278288774e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 6.931472149680279e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  const auto power = hn::BitCast(integers, shifted);
  if constexpr (all_normal) {
    return hn::BitCast(d, hn::Add(hn::BitCast(integers, p), hn::ShiftLeft<23>(power)));
  } else {
    const auto whole = hn::Sub(power, hn::BitCast(integers, magic)), half = hn::ShiftRight<1>(whole);
    const auto bias = hn::Set(integers, 127);
    const auto first = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
    const auto second = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias)));
    return hn::Mul(hn::Mul(p, first), second);
  }
}

/// Greatest and least of `count` > 0 elements, none of which is NaN. Rows hold whole vectors.
struct extremes {
  float greatest, least;
};
HWY_INLINE extremes extremes_of(const float* from, int count) {
  const float_tag d;
  const auto first = hn::Set(d, from[0]);
  auto greatest = first, least = first;
  const auto take = [&](float_vector value) HWY_ATTR {
    greatest = hn::Max(value, greatest);
    least = hn::Min(value, least);
  };
  int i = 0;
  for (; i + lanes <= count; i += lanes) take(hn::Load(d, from + i));
  if (i < count) {
    take(hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(count - i)), hn::Load(d, from + i), first));
  }
  return {hn::GetLane(hn::MaxOfLanes(d, greatest)), hn::GetLane(hn::MinOfLanes(d, least))};
}

/// weight = 2^(score * scale - reference), in place, and their sum. Rows hold whole vectors; weights behind `count` are 0.
template <bool all_normal>
HWY_INLINE float exponentials(float* scores, int count, float scale, float reference) {
  const float_tag d;
  const auto factor = hn::Set(d, scale), subtracted = hn::Set(d, reference);
  auto sum = hn::Zero(d);
  int i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto weight = exp2<all_normal>(hn::MulSub(hn::Load(d, scores + i), factor, subtracted));
    hn::Store(weight, d, scores + i);
    sum = hn::Add(sum, weight);
  }
  if (i < count) {
    const auto weight = hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(count - i)),
                                           exp2<all_normal>(hn::MulSub(hn::Load(d, scores + i), factor, subtracted)));
    hn::Store(weight, d, scores + i);
    sum = hn::Add(sum, weight);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace msabench::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
