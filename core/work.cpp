// SPDX-License-Identifier: Apache-2.0
#include "core/work.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "core/error.h"

namespace msabench {

namespace {

double real(std::int64_t x) { return static_cast<double>(x); }
double bytes_of(dtype type) { return real(size_bytes(type)); }

bool asks(const work_options& options, slot s) {
  return std::find(options.outputs.begin(), options.outputs.end(), s) != options.outputs.end();
}

void require_dims(const problem& p, std::initializer_list<std::int32_t> dims) {
  for (const auto dim : dims)
    if (dim < 1) throw suite_error(fmt::format("work model: {} with a dim of {}", name(p.operation), dim));
}

selection_rule rule_of(const problem& p) { return {p.block, p.topk, p.local_blocks, p.init_blocks}; }

// Bytes of a stage, each tensor entered as it is read or written.
struct traffic {
  count_bounds compulsory;
  double algorithmic = 0;

  void once(double bytes) { apart(bytes, bytes); }
  void apart(double compulsory_bytes, double algorithmic_bytes) {
    apart(count_bounds{compulsory_bytes, compulsory_bytes}, algorithmic_bytes);
  }
  void apart(const count_bounds& compulsory_bytes, double algorithmic_bytes) {
    compulsory.least += compulsory_bytes.least;
    compulsory.most += compulsory_bytes.most;
    algorithmic += algorithmic_bytes;
  }
};

count_bounds times(const count_bounds& b, double factor) { return {b.least * factor, b.most * factor}; }

work finish(double flops, const traffic& t) {
  return {flops, t.compulsory, t.algorithmic, flops, t.compulsory.least, 0};
}

// Counts of a call that its operators share.
struct call {
  const problem& p;
  batch_lengths batch;
  const work_options& options;
  double rows = real(query_rows(batch)), live = real(live_rows(batch)), keys = real(cached_keys(batch)),
         visible = real(visible_keys(batch));

  double hq() const { return p.hq; }
  double hkv() const { return p.hkv; }
  double hi() const { return p.hi; }
  double d() const { return p.d; }
  double di() const { return p.di; }
  bool wants(slot s) const { return asks(options, s); }

  // E_sel, of one KV head on average.
  double selected() const {
    require_dims(p, {p.block, p.topk, p.hkv});
    if (options.selection) return real(options.selection->selected_pairs) / hkv();
    return selected_pairs(batch, rule_of(p)).least;
  }
  count_bounds distinct() const {  // over KV heads
    if (!options.selection) return times(distinct_selected_keys(batch, rule_of(p)), hkv());
    const double known = real(options.selection->distinct_keys);
    return {known, known};
  }
  count_bounds distinct_index() const {
    if (!options.selection) return distinct_selected_keys(batch, rule_of(p), p.hi);
    const double known = real(options.selection->distinct_index_keys);
    return {known, known};
  }

  // Bytes of one row, of one key of one KV head, and of one index key.
  double q_row() const { return hq() * (d() * bytes_of(p.q) + (p.q == e4m3 ? 4 : 0)); }
  double out_row() const { return hq() * d() * bytes_of(p.out); }
  double lse_row() const { return hq() * 4; }
  double ids_row() const { return hkv() * p.topk * 4; }
  double q_idx_row() const { return hi() * (di() * bytes_of(p.q_idx) + (p.idx_scale != 0 ? 4 : 0)); }
  double kv_key() const { return 2 * d() * bytes_of(p.kv) + (p.kv_scale == 2 ? 8 : 0); }
  double k_key() const { return d() * bytes_of(p.kv); }
  double idx_key() const { return di() * bytes_of(p.k_idx) + (p.idx_scale == 2 ? 4 : 0); }
  double kv_tensor_scales() const { return p.kv_scale == 1 && live > 0 ? 8 : 0; }
  double idx_tensor_scales() const { return p.idx_scale == 1 && live > 0 ? 4 : 0; }
};

work norm_rope_work(const call& c) {
  const problem& p = c.p;
  require_dims(p, {p.hq, p.hkv, p.hi, p.d, p.di});
  const double heads = c.hq() + c.hkv() + c.hi() + 1;
  const double flops = 5 * c.d() * (c.hq() + c.hkv()) + 5 * c.di() * (c.hi() + 1) + 3 * p.rope_dims * heads;
  const double row = (c.hq() * c.d() * bytes_of(p.q) + c.hkv() * c.d() * bytes_of(p.kv)) +
                     (c.hi() * c.di() * bytes_of(p.q_idx) + c.di() * bytes_of(p.k_idx));
  const double weights = (2 * c.d() + 2 * c.di()) * bytes_of(p.q), angles = 4.0 * p.rope_dims;
  traffic t;
  t.once(c.live * row);
  t.apart(c.live > 0 ? weights : 0, c.live * weights);
  t.apart(real(distinct_positions(c.batch)) * angles, c.live * angles);
  t.once(c.rows * row);
  return finish(c.live * flops, t);
}

double score_flops(const call& c, double pairs) { return 2 * c.di() * c.hi() * pairs; }

void read_index_operands(const call& c, traffic& t) {
  t.once(c.live * c.q_idx_row() + c.idx_tensor_scales());
  t.apart(c.visible * c.idx_key(), causal_pairs(c.batch) * c.idx_key());
}

double visible_scores_bytes(const call& c) { return c.hi() * visible_blocks(c.batch, c.p.block) * 4; }

work score_work(const call& c) {
  require_dims(c.p, {c.p.hi, c.p.di, c.p.block});
  traffic t;
  read_index_operands(c, t);
  t.once(visible_scores_bytes(c));
  return finish(score_flops(c, causal_pairs(c.batch)), t);
}

// Scores that rows with a choice have outside their forced blocks.
double contested_scores(const call& c) {
  double blocks = 0;
  for (const auto& s : c.batch) {
    const sequence rows = rows_with_choice(s, rule_of(c.p));
    blocks += visible_blocks(batch_lengths(&rows, 1), c.p.block) -
              real(std::min(rows.q_len, rows.kv_len)) * real(c.p.local_blocks + c.p.init_blocks);
  }
  return c.hi() * blocks;
}

work select_work(const call& c) {
  require_dims(c.p, {c.p.hi, c.p.hkv, c.p.block, c.p.topk});
  traffic t;
  t.once(visible_scores_bytes(c) + c.rows * c.ids_row());
  work w = finish(0, t);
  w.ranked_scores = c.hi() * visible_blocks(c.batch, c.p.block);
  w.least_bytes = contested_scores(c) * 4 + c.rows * c.ids_row();
  return w;
}

// index without its outputs: as such, and shortened by what can't matter to the ids.
struct index_stage {
  double flops, least_flops;
  traffic operands;
  double least_bytes;
};

index_stage index_operands(const call& c, bool scores_matter) {
  index_stage s{score_flops(c, causal_pairs(c.batch)), 0, {}, 0};
  read_index_operands(c, s.operands);
  if (scores_matter) {
    s.least_flops = s.flops;
    s.least_bytes = s.operands.compulsory.least;
    return s;
  }
  std::vector<sequence> rows;
  for (const auto& one : c.batch) rows.push_back(rows_with_choice(one, rule_of(c.p)));
  s.least_flops = score_flops(c, causal_pairs(rows) - forced_pairs(c.batch, rule_of(c.p)));
  s.least_bytes = real(live_rows(rows)) * c.q_idx_row() + scored_keys(c.batch, rule_of(c.p)) * c.idx_key();
  return s;
}

work index_work(const call& c) {
  require_dims(c.p, {c.p.hi, c.p.hkv, c.p.di, c.p.block, c.p.topk});
  const bool lse_idx = c.p.operation == op::index && c.wants(slot::lse_idx);
  index_stage s = index_operands(c, lse_idx);
  const double outputs = c.rows * (c.ids_row() + (lse_idx ? c.hkv() * 4 : 0));
  s.operands.apart(outputs, outputs + 2 * visible_scores_bytes(c));
  work w = finish(s.flops, s.operands);
  w.ranked_scores = c.hi() * visible_blocks(c.batch, c.p.block);
  w.least_flops = s.least_flops;
  w.least_bytes = s.least_bytes + outputs;
  return w;
}

// Attention over given or over all visible keys; `ids` says whether ids are read.
work attention_work(const call& c, bool selected, bool ids) {
  require_dims(c.p, {c.p.hq, c.p.hkv, c.p.d});
  const double pairs = selected ? c.selected() : causal_pairs(c.batch);
  traffic t;
  t.once(c.live * c.q_row() + c.kv_tensor_scales());
  const count_bounds all{c.visible * c.hkv(), c.visible * c.hkv()};
  t.apart(times(selected ? c.distinct() : all, c.kv_key()), c.hkv() * pairs * c.kv_key());
  if (ids) t.once(c.live * c.ids_row());
  t.once(c.rows * (c.out_row() + (c.wants(slot::lse) ? c.lse_row() : 0)));
  return finish(4 * c.d() * c.hq() * pairs, t);
}

work msa_work(const call& c) {
  const work index = index_work(c);
  const work attend = attention_work(c, true, false);
  const bool scores = c.wants(slot::scores), ids = c.wants(slot::ids);
  // The ids lie between the stages of a straightforward kernel, and are an output only where asked for.
  const double kept = (scores ? visible_scores_bytes(c) : 0) - (ids ? 0 : c.rows * c.ids_row());
  work w;
  w.useful_flops = index.useful_flops + attend.useful_flops;
  w.compulsory_bytes = {index.compulsory_bytes.least + attend.compulsory_bytes.least + kept,
                        index.compulsory_bytes.most + attend.compulsory_bytes.most + kept};
  w.algorithmic_bytes = index.algorithmic_bytes + attend.algorithmic_bytes + c.live * c.ids_row();
  w.ranked_scores = index.ranked_scores;
  w.least_flops = (scores ? index.useful_flops : index.least_flops) + attend.least_flops;
  w.least_bytes = (scores ? index.compulsory_bytes.least : index.least_bytes) + attend.least_bytes + kept;
  return w;
}

work combine_work(const call& c) {
  require_dims(c.p, {c.p.hq, c.p.d});
  const double partials = c.p.splits;
  traffic t;
  t.once(c.rows * partials * c.hq() * (c.d() * bytes_of(c.p.partial) + 4));
  t.once(c.rows * (c.out_row() + c.lse_row()));
  return finish(c.rows * c.hq() * c.d() * (partials > 0 ? 2 * partials + 1 : 0), t);
}

work backward_work(const call& c, bool selected) {
  require_dims(c.p, {c.p.hq, c.p.hkv, c.p.d});
  const double pairs = selected ? c.selected() : causal_pairs(c.batch), grad = bytes_of(c.p.grad);
  traffic t;
  t.once(c.live * (c.q_row() + 2 * c.out_row() + c.lse_row() + (selected ? c.ids_row() : 0)));
  const count_bounds all{c.visible * c.hkv(), c.visible * c.hkv()};
  t.apart(times(selected ? c.distinct() : all, c.kv_key()), c.hkv() * pairs * c.kv_key());
  t.once(c.rows * c.hq() * c.d() * grad);
  const double zeros = 2 * c.keys * c.hkv() * c.d() * grad;
  t.apart(zeros, zeros + 2 * (2 * c.hkv() * pairs * c.d() * grad));
  return finish(flops_per_pair(c.p) * pairs, t);
}

work kl_work(const call& c) {
  require_dims(c.p, {c.p.hq, c.p.hkv, c.p.hi, c.p.d, c.p.di});
  const bool warm_up = c.p.kl_warm_up != 0;
  const double pairs = warm_up ? causal_pairs(c.batch) : c.selected(), grad = bytes_of(c.p.grad);
  // Index heads that select apart read their keys apart.
  const double index_pairs = warm_up ? pairs : c.hi() * pairs;
  const count_bounds all{c.visible, c.visible};
  traffic t;
  t.once(c.live * (c.q_row() + c.q_idx_row() + (warm_up ? 0 : c.ids_row())));
  t.apart(times(warm_up ? times(all, c.hkv()) : c.distinct(), c.k_key()), c.hkv() * pairs * c.k_key());
  t.apart(times(warm_up ? all : c.distinct_index(), c.idx_key()), index_pairs * c.idx_key());
  t.once(8 + c.rows * c.hi() * c.di() * grad);
  const double zeros = c.keys * c.di() * grad;
  t.apart(zeros, zeros + 2 * index_pairs * c.di() * grad);
  if (c.wants(slot::dq)) t.once(c.rows * c.hq() * c.d() * grad);
  if (c.wants(slot::dk)) t.once(c.keys * c.hkv() * c.d() * grad);
  return finish(flops_per_pair(c.p) * pairs, t);
}

}  // namespace

double flops_per_pair(const problem& p) {
  const double main = real(p.d) * p.hq, index = real(p.di) * p.hi;
  switch (p.operation) {
    case op::score:
    case op::index:
      return 2 * index;
    case op::attend:
    case op::dense:
    case op::vit_attend:
      return 4 * main;
    case op::attend_backward:
    case op::dense_backward:
      return 10 * main;
    case op::kl:
      return 2 * (main + 3 * index);
    default:
      throw suite_error(fmt::format("work model: {} is no sum over pairs of one kind", name(p.operation)));
  }
}

double kl_loss_flops_per_pair(const problem& p) { return 2 * (real(p.d) * p.hq + real(p.di) * p.hi); }

work work_of(const problem& p, batch_lengths batch, const work_options& options) {
  const call c{p, batch, options};
  switch (p.operation) {
    case op::qk_norm_rope:
      return norm_rope_work(c);
    case op::score:
      return score_work(c);
    case op::select:
      return select_work(c);
    case op::index:
      return index_work(c);
    case op::attend:
      return attention_work(c, true, true);
    case op::dense:
      return attention_work(c, false, false);
    case op::msa:
      return msa_work(c);
    case op::combine:
      return combine_work(c);
    case op::attend_backward:
      return backward_work(c, true);
    case op::dense_backward:
      return backward_work(c, false);
    case op::kl:
      return kl_work(c);
    case op::rope3d:
    case op::vit_attend:
    case op::vit3d:
      break;
  }
  throw suite_error(fmt::format("work model: {} has items, not sequences", name(p.operation)));
}

work work_of_vision(const problem& p, std::span<const grid> items, const work_options& options) {
  const bool rotates = p.operation != op::vit_attend, attends = p.operation != op::rope3d;
  if (p.operation != op::rope3d && p.operation != op::vit_attend && p.operation != op::vit3d)
    throw suite_error(fmt::format("work model: {} has sequences, not items", name(p.operation)));
  require_dims(p, {p.hq, p.d});
  const double n = patches(items), pairs = segment_pairs(items, p.vit_window);
  const double q = n * p.hq * p.d * bytes_of(p.q), k = n * p.hq * p.d * bytes_of(p.kv);
  const double kv_pair = 2.0 * p.hq * p.d * bytes_of(p.kv), positions = n * 3 * 4;
  const auto wants = [&](slot s) { return !attends || asks(options, s); };  // rope3d has no optional outputs
  double flops = 0;
  traffic t;
  t.apart(q + k, q + (rotates ? k : 0));
  if (rotates) {
    flops += 3 * 2 * n * p.hq * real(rope3d_dims(p.d));
    t.apart((wants(slot::q_rope) ? q : 0) + (wants(slot::k_rope) ? k : 0), q + k);
    if (wants(slot::positions)) t.once(positions);
  }
  if (attends) {
    flops += 4.0 * p.d * p.hq * pairs;
    if (rotates) t.apart(0, q);   // the rotated one
    t.apart(k, pairs * kv_pair);  // v, and in a straightforward kernel k again and again
    t.once(n * p.hq * (p.d * bytes_of(p.out) + (asks(options, slot::lse) ? 4 : 0)));
  }
  return finish(flops, t);
}

}  // namespace msabench
