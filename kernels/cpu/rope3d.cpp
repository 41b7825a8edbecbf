// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/operators.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope3d.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "kernels/common/storage.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace msabench::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Rotates the pairs (i, i + pairs) of x in place.
void rotate_pairs(const float* HWY_RESTRICT cosines, const float* HWY_RESTRICT sines, std::int32_t pairs,
                  float* HWY_RESTRICT x) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int32_t>(hn::Lanes(d));
  std::int32_t i = 0;
  for (; i + lanes <= pairs; i += lanes) {
    const auto cosine = hn::LoadU(d, cosines + i), sine = hn::LoadU(d, sines + i);
    const auto low = hn::LoadU(d, x + i), high = hn::LoadU(d, x + pairs + i);
    hn::StoreU(hn::NegMulAdd(high, sine, hn::Mul(low, cosine)), d, x + i);
    hn::StoreU(hn::MulAdd(low, sine, hn::Mul(high, cosine)), d, x + pairs + i);
  }
  for (; i < pairs; ++i) {
    const float low = x[i], high = x[i + pairs];
    x[i] = low * cosines[i] - high * sines[i];
    x[i + pairs] = high * cosines[i] + low * sines[i];
  }
}

}  // namespace msabench::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msabench::cpu {

HWY_EXPORT(rotate_pairs);

namespace {

constexpr std::int64_t merge = 2;  // patches of a merge block lie next to each other

/// Of one thread. Neighbours share coordinates, so angles are kept until an axis moves on.
struct scratch {
  float* x;                ///< [d]
  float *cosines, *sines;  ///< [3 * pairs of an axis]
};

scratch take_scratch(carver& memory, std::int64_t d) {
  const auto count = static_cast<double>(padded_columns(d));
  return {memory.take<float>(count), memory.take<float>(count), memory.take<float>(count)};
}

struct layout {
  float* frequencies;  ///< of an axis, the same for all
  thread_slices slices;
  double bytes;

  layout(void* memory, std::int64_t d, int threads) {
    carver shared(memory);
    frequencies = shared.take<float>(static_cast<double>(d));
    slices = take_slices(shared, threads, [&](carver& slice) { take_scratch(slice, d); });
    bytes = shared.bytes();
  }
};

/// A patch by its number in an item: t counts from the first temporal patch of its segment.
patch_position position_in_item(const patch_grid& g, std::int64_t length, std::int64_t patch) {
  const std::int64_t inside_frame = patch % g.frame();
  const std::int64_t block = inside_frame / (merge * merge), inside = inside_frame % (merge * merge);
  const std::int64_t blocks_of_row = g.w / merge;
  return {patch / g.frame() % length, block / blocks_of_row * merge + inside / merge,
          block % blocks_of_row * merge + inside % merge};
}

void write_segments(const rope3d_call& call) {
  std::int64_t count = 0, end = 0;
  call.cu_segments[count++] = 0;
  for (std::int64_t i = 0; i < call.items.items; ++i) {
    const patch_grid g = call.items.at(i);
    const std::int64_t length = call.items.segment_length(g);
    for (std::int64_t first = 0; first < g.t; first += length) {
      end += std::min(length, g.t - first) * g.frame();
      call.cu_segments[count++] = static_cast<std::int32_t>(end);
    }
  }
}

class rotation {
 public:
  rotation(const rope3d_call& call, const layout& memory)
      : call_(call), memory_(memory), of_axis_(call.d / 3 / 2), pairs_(3 * of_axis_) {
    for (std::int32_t i = 0; i < of_axis_; ++i)
      memory_.frequencies[i] = static_cast<float>(std::pow(call.theta, -static_cast<double>(i) / of_axis_));
  }

  /// Tokens first .. end - 1.
  void rotate(std::int64_t first, std::int64_t end, int thread) const {
    carver slice = memory_.slices.of(thread);
    const scratch to = take_scratch(slice, call_.d);
    std::int64_t item = 0, item_first = 0, angles_of[3] = {-1, -1, -1};
    for (std::int64_t token = first; token < end; ++token) {
      while (token >= item_first + call_.items.at(item).tokens()) item_first += call_.items.at(item++).tokens();
      const patch_grid g = call_.items.at(item);
      const patch_position p = position_in_item(g, call_.items.segment_length(g), token - item_first);
      const std::int64_t coordinates[3] = {p.t, p.h, p.w};
      std::int32_t* position = call_.positions + token * call_.position_stride;
      for (int axis = 0; axis < 3; ++axis) {
        position[axis] = static_cast<std::int32_t>(coordinates[axis]);
        if (angles_of[axis] == coordinates[axis]) continue;
        angles_of[axis] = coordinates[axis];
        turn(axis, coordinates[axis], to);
      }
      for (const auto& t : call_.tensors) rotate_heads(t, token, to);
    }
  }

 private:
  void turn(int axis, std::int64_t coordinate, const scratch& to) const {
    for (std::int32_t i = 0; i < of_axis_; ++i) {
      const float angle = static_cast<float>(coordinate) * memory_.frequencies[i];
      to.cosines[axis * of_axis_ + i] = std::cos(angle);
      to.sines[axis * of_axis_ + i] = std::sin(angle);
    }
  }

  void rotate_heads(const rope3d_call::tensor& t, std::int64_t token, const scratch& with) const {
    const std::int64_t bytes = bytes_of(call_.type);
    for (std::int32_t head = 0; head < call_.heads; ++head) {
      widen(t.x + (token * t.x_row_stride + head * t.x_head_stride) * bytes, call_.type, call_.d, 1.0f, with.x);
      HWY_DYNAMIC_DISPATCH(rotate_pairs)(with.cosines, with.sines, pairs_, with.x);
      store_row(with.x, call_.d, call_.type, t.y + (token * t.y_row_stride + head * t.y_head_stride) * bytes);
    }
  }

  const rope3d_call& call_;
  const layout& memory_;
  std::int32_t of_axis_, pairs_;
};

constexpr std::int64_t task_tokens = 16;

}  // namespace

void rope3d(const rope3d_call& call, const run_context& context) {
  write_segments(call);
  const layout memory(context.scratch, call.d, context.threads);
  const rotation all(call, memory);
  for_each_task(context.threads, ceil_div(call.tokens, task_tokens), [&](std::int64_t i, int thread) {
    all.rotate(i * task_tokens, std::min(call.tokens, (i + 1) * task_tokens), thread);
  });
}

double rope3d_scratch_bytes(const msabench_problem& problem, int threads) {
  return layout(nullptr, problem.d, threads).bytes;
}

}  // namespace msabench::cpu
#endif
