// SPDX-License-Identifier: Apache-2.0
#include "kernels/naive/attend.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "kernels/naive/dot.h"
#include "kernels/naive/tasks.h"

namespace msabench::naive {
namespace {

constexpr float no_score = -std::numeric_limits<float>::infinity();

/// A thread's scratch, laid out in the order of attend_scratch_bytes.
struct attend_scratch {
  float* tile;           // [block][d]
  float* query;          // [group][d]
  float* row_values;     // [group][d]
  float* block_values;   // [d]
  float* scores;         // [group][capacity][block]
  float* maxima;         // [group]
  float* weights;        // [group]
  std::int32_t* blocks;  // [capacity]

  attend_scratch(void* memory, const attend_sizes& s) {
    auto* next = static_cast<float*>(memory);
    const auto take = [&next](std::int64_t count) {
      float* taken = next;
      next += count;
      return taken;
    };
    tile = take(s.block * s.d);
    query = take(s.group * s.d);
    row_values = take(s.group * s.d);
    block_values = take(s.d);
    scores = take(s.group * s.capacity * s.block);
    maxima = take(s.group);
    weights = take(s.group);
    blocks = reinterpret_cast<std::int32_t*>(take(s.capacity));
  }
};

}  // namespace

float token_scale(const cache& from, std::int64_t sequence, std::int64_t head, std::int64_t j) {
  return from.factor(sequence, head, j);
}

void load_tile(const stages& stage, const cache& from, const row_place& place, std::int32_t kv_head,
               std::int32_t block_size, const tile& shape, float* to) {
  for (std::int32_t i = 0; i < shape.count; ++i) {
    const std::int64_t token = shape.block * block_size + i;
    float* values = to + static_cast<std::int64_t>(i) * shape.d;
    load_row(from.token(place.sequence, kv_head, token), from.type, shape.d, values);
    if (from.scale.data == nullptr) continue;
    const float factor = stage.token_scale(from, place.sequence, kv_head, token);
    for (std::int32_t c = 0; c < shape.d; ++c) values[c] *= factor;
  }
}

row_place segment_place(const lengths& segments, std::int64_t row) { return segments.place(row); }

std::int32_t visible_keys(const row_place& place, std::int64_t block, std::int32_t block_size) {
  const std::int64_t end = std::min(place.position + 1, place.length);
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(end - block * block_size, 0, block_size));
}

std::int32_t query_head(std::int32_t kv_head, std::int32_t member, std::int32_t, std::int32_t group) {
  return kv_head * group + member;
}

std::int32_t row_blocks(const row_place& place, const std::int32_t* ids, std::int32_t topk, std::int32_t block_size,
                        std::int32_t* blocks, std::int32_t capacity) {
  const std::int64_t visible = visible_blocks(place, block_size);
  std::int32_t count = 0;
  bool ascending = true;
  for (std::int32_t slot = 0; slot < topk && count < capacity; ++slot) {
    const std::int32_t id = ids[slot];
    if (id < 0 || id >= visible) continue;
    const bool above_last = count == 0 || id > blocks[count - 1];
    // Canonical rows ascend and never search, so they stay linear in topk.
    if (!(ascending && above_last) && std::find(blocks, blocks + count, id) != blocks + count) continue;
    ascending = ascending && above_last;
    blocks[count++] = id;
  }
  return count;
}

std::int32_t all_blocks(const row_place& place, std::int32_t block_size, std::int32_t* blocks, std::int32_t capacity) {
  const auto count = static_cast<std::int32_t>(std::min<std::int64_t>(visible_blocks(place, block_size), capacity));
  std::iota(blocks, blocks + count, 0);
  return count;
}

float block_maximum(const float* query, float scale, const tile& keys, float* scores) {
  float maximum = no_score;
  for (std::int32_t i = 0; i < keys.count; ++i) {
    scores[i] = dot(query, keys.rows + static_cast<std::int64_t>(i) * keys.d, keys.d) * scale;
    if (scores[i] > maximum) maximum = scores[i];
  }
  return maximum;
}

void attend_block(const float* scores, float maximum, const tile& values, weighted_sum& sum) {
  std::fill(sum.values, sum.values + values.d, 0.0f);
  sum.weight = 0;
  for (std::int32_t i = 0; i < values.count; ++i) {
    const float weight = std::exp(scores[i] - maximum);
    const float* value = values.rows + static_cast<std::int64_t>(i) * values.d;
    for (std::int32_t c = 0; c < values.d; ++c) sum.values[c] += weight * value[c];
    sum.weight += weight;
  }
}

void merge(const weighted_sum& block, std::int32_t, std::int32_t, std::int32_t d, weighted_sum& row) {
  for (std::int32_t c = 0; c < d; ++c) row.values[c] += block.values[c];
  row.weight += block.weight;
}

void store(const weighted_sum& row, float maximum, const output_row& to) {
  if (maximum == no_score) {
    std::fill(row.values, row.values + to.d, 0.0f);
  } else {
    for (std::int32_t c = 0; c < to.d; ++c) row.values[c] /= row.weight;
  }
  store_row(row.values, to.d, to.type, to.out);
  // The logarithm in double: the declared error is absolute, and fp32 misses it once the sum passes a few hundred.
  if (to.lse != nullptr) {
    *to.lse = maximum == no_score ? no_score : static_cast<float>(maximum + std::log(static_cast<double>(row.weight)));
  }
}

void attend_row(const stages& stage, const attend_call& call, std::int64_t row, std::int32_t kv_head, void* memory) {
  const attend_scratch scratch(memory, {call.group, call.d, call.block, call.capacity});
  const bool in_segment = call.rows.kv_lens == nullptr;
  const row_place place = in_segment ? stage.segment_place(call.rows, row) : call.rows.place(row);
  const std::int32_t slots =
      call.ids == nullptr ? stage.all_blocks(place, call.block, scratch.blocks, call.capacity)
                          : stage.row_blocks(place, call.ids + row * call.id_row_stride + kv_head * call.id_head_stride,
                                             call.topk, call.block, scratch.blocks, call.capacity);
  const auto tile_of = [&](std::int32_t slot) {
    const std::int64_t block = scratch.blocks[slot];
    return tile{scratch.tile, stage.visible_keys(place, block, call.block), call.d, block, slot, slots};
  };
  const auto scores_of = [&](std::int32_t member, std::int32_t slot) {
    return scratch.scores + (static_cast<std::int64_t>(member) * call.capacity + slot) * call.block;
  };
  const auto head_of = [&](std::int32_t member) {
    return stage.query_head(kv_head, member, call.kv_heads, call.group);
  };

  for (std::int32_t member = 0; member < call.group; ++member) {
    const std::int64_t element = row * call.q_row_stride + head_of(member) * call.q_head_stride;
    load_row(call.q + element * bytes_of(call.q_type), call.q_type, call.d,
             scratch.query + std::int64_t{member} * call.d);
    scratch.maxima[member] = no_score;
    scratch.weights[member] = 0;
  }
  std::fill(scratch.row_values, scratch.row_values + std::int64_t{call.group} * call.d, 0.0f);

  for (std::int32_t slot = 0; slot < slots; ++slot) {
    const tile keys = tile_of(slot);
    load_tile(stage, call.keys, place, kv_head, call.block, keys, scratch.tile);
    for (std::int32_t member = 0; member < call.group; ++member) {
      const float maximum =
          stage.block_maximum(scratch.query + std::int64_t{member} * call.d, call.scale, keys, scores_of(member, slot));
      scratch.maxima[member] = std::max(scratch.maxima[member], maximum);
    }
  }
  for (std::int32_t slot = 0; slot < slots; ++slot) {
    const tile values = tile_of(slot);
    load_tile(stage, call.values, place, kv_head, call.block, values, scratch.tile);
    for (std::int32_t member = 0; member < call.group; ++member) {
      if (scratch.maxima[member] == no_score) continue;
      weighted_sum block{scratch.block_values, 0};
      stage.attend_block(scores_of(member, slot), scratch.maxima[member], values, block);
      weighted_sum so_far{scratch.row_values + std::int64_t{member} * call.d, scratch.weights[member]};
      stage.merge(block, slot, slots, call.d, so_far);
      scratch.weights[member] = so_far.weight;
    }
  }
  for (std::int32_t member = 0; member < call.group; ++member) {
    const std::int64_t head = head_of(member);
    const std::int64_t element = row * call.out_row_stride + head * call.out_head_stride;
    float* lse = call.lse == nullptr ? nullptr : call.lse + row * call.lse_row_stride + head * call.lse_head_stride;
    stage.store({scratch.row_values + std::int64_t{member} * call.d, scratch.weights[member]}, scratch.maxima[member],
                {call.out + element * bytes_of(call.out_type), call.out_type, lse, call.d});
  }
}

double attend_scratch_bytes(const attend_sizes& s) {
  const auto group = static_cast<double>(s.group), d = static_cast<double>(s.d), block = static_cast<double>(s.block),
             capacity = static_cast<double>(s.capacity);
  return sizeof(float) * (block * d + 2 * group * d + d + group * capacity * block + 2 * group + capacity);
}

void attend(const stages& stage, const attend_call& call, int threads, void* scratch, std::int64_t slice_bytes) {
  const auto compute = [&](std::int64_t task, void* slice) {
    stage.attend_row(stage, call, task / call.kv_heads, static_cast<std::int32_t>(task % call.kv_heads), slice);
  };
  for_each_task(call.rows.tokens() * call.kv_heads, threads, 1, scratch, slice_bytes, compute);
}

}  // namespace msabench::naive
