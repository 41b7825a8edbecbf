// SPDX-License-Identifier: Apache-2.0
#include "kernels/naive/attend_backward.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/storage.h"
#include "kernels/naive/attend.h"
#include "kernels/naive/dot.h"
#include "kernels/naive/tasks.h"

namespace msabench::naive {
namespace {

/// A thread's scratch, laid out in the order of backward_scratch_bytes.
struct backward_scratch {
  float *keys, *values;  // [block][d]
  float *dk, *dv;        // [block][d]
  float *query, *d_out;  // [group][d]
  float* dq;             // [group][d]
  float *line, *other;   // [d]
  float *lse, *delta;    // [group]
  std::int32_t* blocks;  // [capacity]

  backward_scratch(void* memory, const backward_sizes& s) {
    auto* next = static_cast<float*>(memory);
    const auto take = [&next](std::int64_t count) {
      float* taken = next;
      next += count;
      return taken;
    };
    for (float** tile : {&keys, &values, &dk, &dv}) *tile = take(s.block * s.d);
    for (float** heads : {&query, &d_out, &dq}) *heads = take(s.group * s.d);
    for (float** one : {&line, &other}) *one = take(s.d);
    for (float** each : {&lse, &delta}) *each = take(s.group);
    blocks = reinterpret_cast<std::int32_t*>(take(s.capacity));
  }
};

/// One pass over a part of the batch, with the memory of one thread.
class pass {
 public:
  pass(const stages& stage, const backward_call& call, void* memory)
      : stage_(stage), call_(call), s_(memory, {call.group, call.d, call.block, call.capacity}) {}

  /// dq of the heads of one KV head at one row.
  void differentiate_row(std::int64_t row, std::int32_t kv_head);

  /// dk and dv of the keys of one block.
  void differentiate_block(std::int64_t sequence, std::int64_t block, std::int32_t kv_head);

 private:
  float* line(float* of, std::int64_t i) const { return of + i * call_.d; }
  void load(const backward_call::token_tensor& from, std::int64_t row, std::int64_t head, float* to) const {
    load_row(from.at(row, head), from.type, call_.d, to);
  }

  void load_heads(std::int64_t row, std::int32_t kv_head);
  void load_block(const row_place& place, std::int32_t kv_head, const tile& shape);
  std::int32_t blocks_of(const row_place& place, std::int64_t row, std::int32_t kv_head) const;
  bool reads(const row_place& place, std::int64_t row, std::int32_t kv_head, std::int64_t block) const;

  /// What a key weighs for a head, and what the gradient of its score is.
  struct weighted {
    float weight, ds;
  };
  weighted differentiate(std::int32_t member, std::int32_t key) const {
    const float score = dot(line(s_.query, member), line(s_.keys, key), call_.d) * call_.scale;
    const float weight = std::exp(score - s_.lse[member]);
    const float d_weight = dot(line(s_.d_out, member), line(s_.values, key), call_.d);
    return {weight, stage_.score_gradient(weight, d_weight, s_.delta[member])};
  }

  void add_row(std::int64_t row, std::int32_t kv_head, std::int32_t keys);
  void store_scaled(const float* values, float factor, void* to) const {
    for (std::int32_t c = 0; c < call_.d; ++c) s_.line[c] = values[c] * factor;
    stage_.store_gradient(s_.line, call_.d, call_.gradient_type, to);
  }

  const stages& stage_;
  const backward_call& call_;
  backward_scratch s_;
};

void pass::load_heads(std::int64_t row, std::int32_t kv_head) {
  const std::int32_t heads = call_.kv_heads * call_.group;
  for (std::int32_t member = 0; member < call_.group; ++member) {
    const std::int32_t head = stage_.query_head(kv_head, member, call_.kv_heads, call_.group);
    load(call_.q, row, head, line(s_.query, member));
    load(call_.d_out, row, head, line(s_.d_out, member));
    s_.lse[member] = call_.lse[row * call_.lse_row_stride + head * call_.lse_head_stride];
    const std::int32_t of = stage_.delta_head(head, heads);
    load(call_.d_out, row, of, s_.line);
    load(call_.out, row, of, s_.other);
    s_.delta[member] = dot(s_.line, s_.other, call_.d);
  }
}

void pass::load_block(const row_place& place, std::int32_t kv_head, const tile& shape) {
  load_tile(stage_, call_.keys, place, kv_head, call_.block, shape, s_.keys);
  load_tile(stage_, call_.values, place, kv_head, call_.block, shape, s_.values);
}

std::int32_t pass::blocks_of(const row_place& place, std::int64_t row, std::int32_t kv_head) const {
  if (call_.ids == nullptr) return stage_.all_blocks(place, call_.block, s_.blocks, call_.capacity);
  return stage_.row_blocks(place, call_.ids + row * call_.id_row_stride + kv_head * call_.id_head_stride, call_.topk,
                           call_.block, s_.blocks, call_.capacity);
}

bool pass::reads(const row_place& place, std::int64_t row, std::int32_t kv_head, std::int64_t block) const {
  if (block >= visible_blocks(place, call_.block)) return false;
  if (call_.ids == nullptr) return true;
  const std::int32_t count = blocks_of(place, row, kv_head);
  return std::find(s_.blocks, s_.blocks + count, block) != s_.blocks + count;
}

void pass::differentiate_row(std::int64_t row, std::int32_t kv_head) {
  const row_place place = call_.rows.place(row);
  const std::int32_t slots = blocks_of(place, row, kv_head);
  std::fill_n(s_.dq, std::int64_t{call_.group} * call_.d, 0.0f);
  if (slots > 0) load_heads(row, kv_head);
  for (std::int32_t slot = 0; slot < slots; ++slot) {
    const std::int64_t block = s_.blocks[slot];
    const tile keys{s_.keys, stage_.visible_keys(place, block, call_.block), call_.d, block, slot, slots};
    load_block(place, kv_head, keys);
    for (std::int32_t member = 0; member < call_.group; ++member) {
      std::fill_n(s_.line, call_.d, 0.0f);
      for (std::int32_t i = 0; i < keys.count; ++i)
        stage_.add_dq(differentiate(member, i).ds, line(s_.keys, i), call_.d, s_.line);
      float* const sum = line(s_.dq, member);
      for (std::int32_t c = 0; c < call_.d; ++c) sum[c] += s_.line[c];
    }
  }
  for (std::int32_t member = 0; member < call_.group; ++member) {
    const std::int32_t head = stage_.query_head(kv_head, member, call_.kv_heads, call_.group);
    store_scaled(line(s_.dq, member), stage_.dq_scale(call_.scale), call_.dq.at(row, head, call_.gradient_type));
  }
}

/// What one row adds to the first `keys` keys of the block in memory.
void pass::add_row(std::int64_t row, std::int32_t kv_head, std::int32_t keys) {
  load_heads(row, kv_head);
  for (std::int32_t member = 0; member < call_.group; ++member) {
    load(call_.d_out, row, stage_.dv_head(kv_head, member, call_.kv_heads, call_.group), s_.other);
    for (std::int32_t i = 0; i < keys; ++i) {
      const weighted key = differentiate(member, i);
      stage_.add_dk(key.ds, line(s_.query, member), call_.d, line(s_.dk, i));
      stage_.add_dv(key.weight, s_.other, call_.d, line(s_.dv, i));
    }
  }
}

void pass::differentiate_block(std::int64_t sequence, std::int64_t block, std::int32_t kv_head) {
  const std::int64_t first = block * call_.block, length = call_.rows.kv_lens[sequence];
  if (first >= length) return;
  const auto count = static_cast<std::int32_t>(std::min<std::int64_t>(call_.block, length - first));
  load_block({sequence, length, length - 1}, kv_head, {s_.keys, count, call_.d, block, 0, 1});
  std::fill_n(s_.dk, std::int64_t{count} * call_.d, 0.0f);
  std::fill_n(s_.dv, std::int64_t{count} * call_.d, 0.0f);
  const std::int64_t first_row = call_.rows.cu_seqlens_q[sequence];
  const std::int64_t rows = call_.rows.cu_seqlens_q[sequence + 1] - first_row;
  for (std::int64_t turn = 0; turn < rows; ++turn) {
    const std::int64_t row = stage_.gradient_row(first_row, rows, turn);
    const row_place place = call_.rows.place(row);
    if (!reads(place, row, kv_head, block)) continue;
    add_row(row, kv_head, std::min(count, stage_.visible_keys(place, block, call_.block)));
  }
  for (std::int32_t i = 0; i < count; ++i) {
    const std::int64_t key = call_.keys.cu_seqlens_kv[sequence] + first + i;
    store_scaled(line(s_.dk, i), call_.scale, call_.dk.at(key, kv_head, call_.gradient_type));
    store_scaled(line(s_.dv, i), 1, call_.dv.at(key, kv_head, call_.gradient_type));
  }
}

}  // namespace

std::int32_t delta_head(std::int32_t head, std::int32_t) { return head; }

float score_gradient(float weight, float d_weight, float delta) { return weight * (d_weight - delta); }

float dq_scale(float softmax_scale) { return softmax_scale; }

void add_gradient(float factor, const float* values, std::int32_t d, float* sum) {
  for (std::int32_t c = 0; c < d; ++c) sum[c] += factor * values[c];
}

std::int64_t gradient_row(std::int64_t first, std::int64_t, std::int64_t i) { return first + i; }

void store_gradient(const float* values, std::int32_t d, msabench_dtype type, void* to) {
  store_row(values, d, type, to);
}

double backward_scratch_bytes(const backward_sizes& s) {
  const auto group = static_cast<double>(s.group), d = static_cast<double>(s.d), block = static_cast<double>(s.block),
             capacity = static_cast<double>(s.capacity);
  return sizeof(float) * (4 * block * d + 3 * group * d + 2 * d + 2 * group + capacity);
}

void attend_backward(const stages& stage, const backward_call& call, int threads, void* scratch,
                     std::int64_t slice_bytes) {
  const auto of_row = [&](std::int64_t task, void* slice) {
    pass(stage, call, slice).differentiate_row(task / call.kv_heads, static_cast<std::int32_t>(task % call.kv_heads));
  };
  for_each_task(call.rows.tokens() * call.kv_heads, threads, 1, scratch, slice_bytes, of_row);
  const auto of_block = [&](std::int64_t task, void* slice) {
    const std::int64_t place = task / call.kv_heads;
    pass(stage, call, slice)
        .differentiate_block(place / call.max_blocks, place % call.max_blocks,
                             static_cast<std::int32_t>(task % call.kv_heads));
  };
  for_each_task(call.rows.batch * call.max_blocks * call.kv_heads, threads, 1, scratch, slice_bytes, of_block);
}

}  // namespace msabench::naive
