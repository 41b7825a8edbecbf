// SPDX-License-Identifier: Apache-2.0
#include "kernels/naive/kl.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/common/storage.h"
#include "kernels/naive/attend.h"
#include "kernels/naive/dot.h"
#include "kernels/naive/tasks.h"

namespace msabench::naive {
namespace {

constexpr float no_score = -std::numeric_limits<float>::infinity();

/// A thread's scratch, laid out in the order of kl_scratch_bytes.
struct kl_scratch {
  float* keys;                        // [block][d]
  float *index_keys, *dk_idx;         // [block][di]
  float* query;                       // [group][d]
  float *index_query, *sum, *part;    // [di]
  float* line;                        // [max(d, di)]
  float *scores, *maxima, *sums;      // [group]
  float *block_sums, *lse, *lse_idx;  // [group], lse_idx [1]
  std::int32_t* blocks;               // [max_blocks]

  kl_scratch(void* memory, const kl_sizes& s) {
    auto* next = static_cast<float*>(memory);
    const auto take = [&next](std::int64_t count) {
      float* taken = next;
      next += count;
      return taken;
    };
    keys = take(s.block * s.d);
    for (float** tile : {&index_keys, &dk_idx}) *tile = take(s.block * s.di);
    query = take(s.group * s.d);
    for (float** one : {&index_query, &sum, &part}) *one = take(s.di);
    line = take(std::max(s.d, s.di));
    for (float** each : {&scores, &maxima, &sums, &block_sums, &lse}) *each = take(s.group);
    lse_idx = take(1);
    blocks = reinterpret_cast<std::int32_t*>(take(s.max_blocks));
  }
};

/// Of every (row, KV head): the log-sum-exps of its query heads and of the student, and its share of the loss.
struct kept_rows {
  double* loss;
  float *lse, *lse_idx;
  std::int64_t group;

  kept_rows(void* memory, std::int64_t rows, std::int32_t kv_heads, std::int64_t heads_of_group)
      : loss(static_cast<double*>(memory)),
        lse(reinterpret_cast<float*>(loss + rows * kv_heads)),
        lse_idx(lse + rows * kv_heads * heads_of_group),
        group(heads_of_group) {}
};

/// One pass over a part of the batch, with the memory of one thread.
class pass {
 public:
  pass(const stages& stage, const kl_call& call, const kept_rows& kept, void* memory)
      : stage_(stage),
        call_(call),
        kept_(kept),
        s_(memory, {call.group, call.d, call.di, call.block, call.max_blocks}),
        factor_(stage.kl_factor(call.coeff, call.rows, call.kv_heads)) {}

  /// What is kept of a row and KV head, and dq_idx; the row's lines of dq, if wanted.
  void differentiate_row(std::int64_t row, std::int32_t kv_head);

  /// dk_idx of the keys of one block; their lines of dk, if wanted.
  void differentiate_block(std::int64_t sequence, std::int64_t block);

 private:
  void load_heads(std::int64_t row, std::int32_t kv_head);
  void load_keys(const row_place& place, std::int32_t kv_head, const tile& shape) const {
    load_tile(stage_, call_.keys, place, kv_head, call_.block, shape, s_.keys);
  }
  void load_index_keys(const row_place& place, tile shape) const {
    shape.d = call_.di;
    load_tile(stage_, call_.index_keys, place, 0, call_.block, shape, s_.index_keys);
  }
  tile tile_of(const row_place& place, std::int64_t block) const {
    return {s_.keys, stage_.visible_keys(place, block, call_.block), call_.d, block, 0, 1};
  }

  /// Of the keys in memory: scores [group] of the query heads, the student's score.
  void score_heads(std::int32_t key, float* scores) const {
    for (std::int32_t member = 0; member < call_.group; ++member)
      scores[member] =
          dot(s_.query + std::int64_t{member} * call_.d, s_.keys + std::int64_t{key} * call_.d, call_.d) * call_.scale;
    stage_.teacher_scores(scores, call_.group);
  }
  float score_student(std::int32_t key) const {
    return dot(s_.index_query, s_.index_keys + std::int64_t{key} * call_.di, call_.di) * call_.index_scale;
  }

  template <class Load, class Score>
  void normalise(const row_place& place, std::int32_t slots, std::int32_t heads, const Load& load, const Score& score,
                 float* lse) const;
  void normalise_row(std::int64_t row, std::int32_t kv_head);

  struct compared {
    float difference;  ///< P' - P
    double loss;
  };
  compared compare(std::int32_t key) const;

  double sum_row(const row_place& place, std::int32_t kv_head, std::int32_t slots);
  void add_row(std::int64_t row, std::int32_t kv_head, std::int32_t keys);
  void store_scaled(const float* values, void* to) const {
    const auto factor = static_cast<float>(factor_ * static_cast<double>(call_.index_scale));
    for (std::int32_t c = 0; c < call_.di; ++c) s_.line[c] = values[c] * factor;
    stage_.store_gradient(s_.line, call_.di, call_.gradient_type, to);
  }
  /// `values`: the same line of q or k.
  void store_detached(const float* values, void* to) const {
    stage_.detached_gradient(values, call_.d, s_.line);
    stage_.store_gradient(s_.line, call_.d, call_.gradient_type, to);
  }

  const stages& stage_;
  const kl_call& call_;
  const kept_rows& kept_;
  kl_scratch s_;
  double factor_;
};

void pass::load_heads(std::int64_t row, std::int32_t kv_head) {
  for (std::int32_t member = 0; member < call_.group; ++member) {
    const std::int32_t head = stage_.query_head(kv_head, member, call_.kv_heads, call_.group);
    load_row(call_.q.at(row, head), call_.q.type, call_.d, s_.query + std::int64_t{member} * call_.d);
  }
  load_row(call_.q_idx.at(row, stage_.index_head(kv_head, call_.kv_heads)), call_.q_idx.type, call_.di, s_.index_query);
}

/// lse [heads] over the first `slots` of the blocks in memory: score(key, scores) after load(block).
template <class Load, class Score>
void pass::normalise(const row_place& place, std::int32_t slots, std::int32_t heads, const Load& load,
                     const Score& score, float* lse) const {
  std::fill_n(s_.maxima, heads, no_score);
  std::fill_n(s_.sums, heads, 0.0f);
  for (const bool sums : {false, true}) {
    for (std::int32_t slot = 0; slot < slots; ++slot) {
      const tile keys = tile_of(place, s_.blocks[slot]);
      load(keys);
      std::fill_n(s_.block_sums, heads, 0.0f);
      for (std::int32_t i = 0; i < keys.count; ++i) {
        score(i, s_.scores);
        for (std::int32_t h = 0; h < heads; ++h) {
          if (sums)
            s_.block_sums[h] += std::exp(s_.scores[h] - s_.maxima[h]);
          else
            s_.maxima[h] = std::max(s_.maxima[h], s_.scores[h]);
        }
      }
      for (std::int32_t h = 0; h < heads; ++h) s_.sums[h] += s_.block_sums[h];
    }
  }
  // The logarithm in double: the declared error is absolute, and fp32 misses it once the sum passes a few hundred.
  for (std::int32_t h = 0; h < heads; ++h)
    lse[h] = static_cast<float>(s_.maxima[h] + std::log(static_cast<double>(s_.sums[h])));
}

void pass::normalise_row(std::int64_t row, std::int32_t kv_head) {
  const row_place place = call_.rows.place(row);
  const auto score_teacher = [&](std::int32_t key, float* scores) { score_heads(key, scores); };
  const auto score_index = [&](std::int32_t key, float* scores) { *scores = score_student(key); };
  normalise(
      place, stage_.teacher_blocks(stage_, call_, row, kv_head, s_.blocks), call_.group,
      [&](const tile& keys) { load_keys(place, kv_head, keys); }, score_teacher, s_.lse);
  normalise(
      place, stage_.student_blocks(stage_, call_, row, kv_head, s_.blocks), 1,
      [&](const tile& keys) { load_index_keys(place, keys); }, score_index, s_.lse_idx);
}

pass::compared pass::compare(std::int32_t key) const {
  score_heads(key, s_.scores);
  for (std::int32_t member = 0; member < call_.group; ++member)
    s_.scores[member] = std::exp(s_.scores[member] - s_.lse[member]);
  const float teacher = stage_.teacher_weight(s_.scores, call_.group);
  const float log_student = score_student(key) - *s_.lse_idx;
  return {stage_.kl_difference(std::exp(log_student), teacher), stage_.loss_term(teacher, log_student)};
}

/// Sum of differences times index keys into s_.sum, over the first `slots` of the blocks in memory; returns the loss.
double pass::sum_row(const row_place& place, std::int32_t kv_head, std::int32_t slots) {
  double loss = 0;
  std::fill_n(s_.sum, call_.di, 0.0f);
  for (std::int32_t slot = 0; slot < slots; ++slot) {
    const tile keys = tile_of(place, s_.blocks[slot]);
    load_keys(place, kv_head, keys);
    load_index_keys(place, keys);
    std::fill_n(s_.part, call_.di, 0.0f);
    for (std::int32_t i = 0; i < keys.count; ++i) {
      const compared at = compare(i);
      loss += at.loss;
      stage_.add_dq_idx(at.difference, s_.index_keys + std::int64_t{i} * call_.di, call_.di, s_.part);
    }
    for (std::int32_t c = 0; c < call_.di; ++c) s_.sum[c] += s_.part[c];
  }
  return loss;
}

void pass::differentiate_row(std::int64_t row, std::int32_t kv_head) {
  const row_place place = call_.rows.place(row);
  const std::int64_t at = row * call_.kv_heads + kv_head;
  load_heads(row, kv_head);
  kept_.loss[at] = 0;
  if (stage_.loss_blocks(stage_, call_, row, kv_head, s_.blocks) > 0) {
    normalise_row(row, kv_head);
    std::copy_n(s_.lse, call_.group, kept_.lse + at * call_.group);
    kept_.lse_idx[at] = *s_.lse_idx;
    const std::int32_t slots = stage_.loss_blocks(stage_, call_, row, kv_head, s_.blocks);
    kept_.loss[at] = factor_ * sum_row(place, kv_head, slots);
  } else {
    stage_.empty_row_gradient(s_.index_query, call_.di, s_.sum);
  }
  store_scaled(s_.sum, call_.dq_idx.at(row, kv_head, call_.gradient_type));
  if (call_.dq.data == nullptr) return;
  for (std::int32_t member = 0; member < call_.group; ++member) {
    const std::int32_t head = stage_.query_head(kv_head, member, call_.kv_heads, call_.group);
    store_detached(s_.query + std::int64_t{member} * call_.d, call_.dq.at(row, head, call_.gradient_type));
  }
}

/// What one row and KV head adds to the first `keys` keys of the block in memory.
void pass::add_row(std::int64_t row, std::int32_t kv_head, std::int32_t keys) {
  const std::int64_t at = row * call_.kv_heads + kv_head;
  load_heads(row, kv_head);
  std::copy_n(kept_.lse + at * call_.group, call_.group, s_.lse);
  *s_.lse_idx = kept_.lse_idx[at];
  for (std::int32_t i = 0; i < keys; ++i)
    stage_.add_dk_idx(compare(i).difference, s_.index_query, call_.di, s_.dk_idx + std::int64_t{i} * call_.di);
}

void pass::differentiate_block(std::int64_t sequence, std::int64_t block) {
  const std::int64_t first = block * call_.block, length = call_.rows.kv_lens[sequence];
  if (first >= length) return;
  const row_place last{sequence, length, length - 1};
  const auto count = static_cast<std::int32_t>(std::min<std::int64_t>(call_.block, length - first));
  const tile keys{s_.keys, count, call_.d, block, 0, 1};
  const std::int64_t first_key = call_.keys.cu_seqlens_kv[sequence] + first;
  load_index_keys(last, keys);
  std::fill_n(s_.dk_idx, std::int64_t{count} * call_.di, 0.0f);
  for (std::int32_t kv_head = 0; kv_head < call_.kv_heads; ++kv_head) {
    load_keys(last, kv_head, keys);
    for (std::int64_t row = call_.rows.cu_seqlens_q[sequence]; row < call_.rows.cu_seqlens_q[sequence + 1]; ++row) {
      const row_place place = call_.rows.place(row);
      if (block >= visible_blocks(place, call_.block)) continue;
      const std::int32_t* const end = s_.blocks + stage_.loss_blocks(stage_, call_, row, kv_head, s_.blocks);
      if (std::find(static_cast<const std::int32_t*>(s_.blocks), end, block) == end) continue;
      add_row(row, kv_head, std::min(count, stage_.visible_keys(place, block, call_.block)));
    }
    for (std::int32_t i = 0; call_.dk.data != nullptr && i < count; ++i)
      store_detached(s_.keys + std::int64_t{i} * call_.d, call_.dk.at(first_key + i, kv_head, call_.gradient_type));
  }
  for (std::int32_t i = 0; i < count; ++i)
    store_scaled(s_.dk_idx + std::int64_t{i} * call_.di, call_.dk_idx.at(first_key + i, 0, call_.gradient_type));
}

}  // namespace

std::int32_t kl_blocks(const stages& stage, const kl_call& call, std::int64_t row, std::int32_t kv_head,
                       std::int32_t* blocks) {
  const row_place place = call.rows.place(row);
  const auto capacity = static_cast<std::int32_t>(call.max_blocks);
  if (call.ids == nullptr) return stage.all_blocks(place, call.block, blocks, capacity);
  return stage.row_blocks(place, call.ids + row * call.id_row_stride + kv_head * call.id_head_stride, call.topk,
                          call.block, blocks, capacity);
}

void teacher_scores(float*, std::int32_t) {}

float teacher_weight(const float* weights, std::int32_t group) {
  float sum = 0;
  for (std::int32_t member = 0; member < group; ++member) sum += weights[member];
  return sum / static_cast<float>(group);
}

double loss_term(float teacher, float log_student) {
  if (teacher == 0) return 0;
  return static_cast<double>(teacher) * (std::log(static_cast<double>(teacher)) - static_cast<double>(log_student));
}

float kl_difference(float student, float teacher) { return student - teacher; }

double kl_factor(double coeff, const lengths& rows, std::int32_t kv_heads) {
  return coeff / (static_cast<double>(std::max<std::int64_t>(rows.tokens(), 1)) * kv_heads);
}

void zero_gradient(const float*, std::int32_t count, float* line) { std::fill_n(line, count, 0.0f); }

double kl_scratch_bytes(const kl_sizes& s) {
  const auto group = static_cast<double>(s.group), d = static_cast<double>(s.d), di = static_cast<double>(s.di),
             block = static_cast<double>(s.block), max_blocks = static_cast<double>(s.max_blocks);
  return sizeof(float) * (block * (d + 2 * di) + group * d + 3 * di + std::max(d, di) + 5 * group + 1 + max_blocks);
}

double kl_kept_bytes(std::int64_t rows, std::int32_t kv_heads, std::int64_t group) {
  const double lines = static_cast<double>(rows) * kv_heads;
  return lines * (sizeof(double) + sizeof(float) * (static_cast<double>(group) + 1));
}

void kl(const stages& stage, const kl_call& call, int threads, void* scratch, std::int64_t slice_bytes) {
  const std::int64_t rows = call.rows.tokens(), lines = rows * call.kv_heads;
  const kept_rows kept(static_cast<std::byte*>(scratch) + slice_bytes * threads, rows, call.kv_heads, call.group);
  const auto of_row = [&](std::int64_t task, void* slice) {
    pass(stage, call, kept, slice)
        .differentiate_row(task / call.kv_heads, static_cast<std::int32_t>(task % call.kv_heads));
  };
  for_each_task(lines, threads, 1, scratch, slice_bytes, of_row);
  const auto of_block = [&](std::int64_t task, void* slice) {
    pass(stage, call, kept, slice).differentiate_block(task / call.max_blocks, task % call.max_blocks);
  };
  for_each_task(call.rows.batch * call.max_blocks, threads, 1, scratch, slice_bytes, of_block);
  double loss = 0;
  for (std::int64_t line = 0; line < lines; ++line) loss += kept.loss[line];
  *call.loss = loss;
}

}  // namespace msabench::naive
