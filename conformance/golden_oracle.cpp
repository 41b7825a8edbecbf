// SPDX-License-Identifier: Apache-2.0
#include "conformance/golden_oracle.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <span>

#include "core/error.h"
#include "reference/attend.h"
#include "reference/attend_backward.h"
#include "reference/dense.h"
#include "reference/kl.h"
#include "reference/layer.h"
#include "reference/rope3d.h"
#include "reference/score.h"
#include "reference/select.h"
#include "reference/vit3d.h"

namespace msabench {
namespace {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

std::vector<std::int64_t> rows_from(std::int64_t first, std::int64_t end) {
  std::vector<std::int64_t> rows;
  for (std::int64_t row = first; row < end; ++row) rows.push_back(row);
  return rows;
}

// A few rows at a time, since results come with gauges that nobody asks for here; at most 64 times, since every call
// looks at the lengths of all rows.
std::int64_t piece_of(std::int64_t rows) { return std::max<std::int64_t>(64, (rows + 63) / 64); }
template <class Body>
void in_pieces(std::int64_t rows, const Body& body) {
  for (std::int64_t first = 0; first < rows; first += piece_of(rows))
    body(rows_from(first, std::min(rows, first + piece_of(rows))));
}

tensor_view view(const std::vector<std::int32_t>& values, std::vector<std::int64_t> shape) {
  return {values.data(), packed(i32, std::move(shape))};
}
tensor_view view(const std::vector<double>& values, std::vector<std::int64_t> shape) {
  return {values.data(), packed(fp64, std::move(shape))};
}

std::int32_t size32(const golden_case& of, std::string_view name) { return static_cast<std::int32_t>(of.size(name)); }

golden_value numbers(std::string_view tensor, std::vector<double> values) { return {tensor, std::move(values), {}}; }
golden_value integers(std::string_view tensor, std::vector<std::int32_t> values) {
  return {tensor, {}, std::move(values)};
}

// One sequence, stage by stage.
class attention {
 public:
  attention(const golden_case& of, const golden_inputs& tensors)
      : of_(of), tensors_(tensors), cu_q_{0, size32(of, "q_len")}, cu_kv_{0, size32(of, "kv_len")} {
    p_.hq = size32(of, "hq"), p_.hkv = p_.hi = size32(of, "hkv"), p_.d = size32(of, "d"), p_.di = size32(of, "didx");
    p_.block = size32(of, "block"), p_.topk = size32(of, "topk");
    p_.local_blocks = size32(of, "local"), p_.init_blocks = size32(of, "init");
    p_.batch = 1;
    p_.total_q = p_.max_q_len = of.size("q_len");
    p_.max_kv_len = p_.total_kv = of.size("kv_len");
    p_.q = p_.kv = p_.out = p_.grad = fp64;
    p_.kl_coeff = 1;
  }

  std::vector<golden_value> results() {
    std::vector<golden_value> all{numbers("block_scores", block_scores())};
    const tensor_view scores = given("block_scores", all[0]);
    all.push_back(integers("block_ids", block_ids(scores)));
    // Views of elements of `all` stay valid, since moving a vector moves no value.
    ids_ = given("block_ids", all[1]);
    add_attention("out", "lse", all, [&](std::span<const std::int64_t> rows) { return attend(rows); });
    add_gradients(all);
    add_attention("dense_out", "dense_lse", all, [&](std::span<const std::int64_t> rows) { return dense(rows); });
    add_kl("kl_sparse", 0, all);
    add_kl("kl_warmup", 1, all);
    return all;
  }

 private:
  const tensor_view& input(std::string_view name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) throw suite_error("golden: no tensor " + std::string(name));
    return found->second;
  }
  // The tensor of an earlier stage that a later one reads.
  tensor_view given(std::string_view name, const golden_value& own) const {
    if (const auto found = tensors_.find(name); found != tensors_.end()) return found->second;
    for (const golden_tensor& rule : of_.tensors)
      if (rule.name == name)
        return rule.integer ? view(own.integers, of_.shape_of(rule)) : view(own.numbers, of_.shape_of(rule));
    throw suite_error("golden: no tensor " + std::string(name));
  }
  tensor_view cu_q() const { return view(cu_q_, {2}); }
  tensor_view cu_kv() const { return view(cu_kv_, {2}); }
  tensor_view kv_lens() const { return {cu_kv_.data() + 1, packed(i32, {1})}; }

  std::vector<double> block_scores() const {
    const std::int64_t rows = of_.size("q_len"), blocks = of_.size("blocks");
    std::vector<double> scores(static_cast<std::size_t>(of_.size("hkv") * rows * blocks), minus_infinity);
    reference::score_inputs in;
    in.p = p_;
    in.q_idx = input("q_idx"), in.k_idx = input("k_idx");
    in.cu_seqlens_q = cu_q(), in.kv_lens = kv_lens(), in.cu_seqlens_kv = cu_kv();
    in_pieces(rows, [&](std::span<const std::int64_t> some) {
      for (const auto& r : reference::score(in, some, {}))
        std::ranges::copy(r.value, scores.begin() + (r.head * rows + r.row) * blocks);
    });
    return scores;
  }

  std::vector<std::int32_t> block_ids(const tensor_view& scores) const {
    return reference::select({p_, scores, cu_q(), kv_lens()}, rows_from(0, of_.size("q_len")));
  }

  std::vector<reference::attend_row> attend(std::span<const std::int64_t> rows) const {
    return reference::attend({p_, input("q"), input("k"), input("v"), ids_, cu_q(), kv_lens(), cu_kv(), {}}, rows, {});
  }
  std::vector<reference::attend_row> dense(std::span<const std::int64_t> rows) const {
    return reference::dense({p_, input("q"), input("k"), input("v"), cu_q(), kv_lens(), cu_kv(), {}}, rows, {});
  }

  template <class Attend>
  void add_attention(std::string_view out_name, std::string_view lse_name, std::vector<golden_value>& all,
                     const Attend& attend_rows) const {
    std::vector<double> out, lse;
    in_pieces(of_.size("q_len"), [&](std::span<const std::int64_t> some) {
      for (const auto& row : attend_rows(some)) {
        out.insert(out.end(), row.out.begin(), row.out.end());
        lse.push_back(row.lse);
      }
    });
    all.push_back(numbers(out_name, std::move(out)));
    all.push_back(numbers(lse_name, std::move(lse)));
  }

  void add_gradients(std::vector<golden_value>& all) const {
    auto g = reference::attend_backward(
        {p_, input("q"), input("k"), input("v"), ids_, input("d_out"), cu_q(), kv_lens(), cu_kv()}, {});
    all.push_back(numbers("dq", std::move(g.dq.value)));
    all.push_back(numbers("dk", std::move(g.dk.value)));
    all.push_back(numbers("dv", std::move(g.dv.value)));
  }

  void add_kl(const std::string& stage, std::int32_t warm_up, std::vector<golden_value>& all) {
    problem p = p_;
    p.kl_warm_up = warm_up;
    auto kl = reference::kl(
        {p, input("q"), input("k"), input("q_idx"), input("k_idx"), ids_, cu_q(), kv_lens(), cu_kv()}, {});
    all.push_back(numbers(name_of(stage), {kl.loss}));
    all.push_back(numbers(name_of(stage + "_dq_idx"), std::move(kl.dq_idx.value)));
    all.push_back(numbers(name_of(stage + "_dk_idx"), std::move(kl.dk_idx.value)));
  }
  // The kind's own spelling, which lives as long as the program.
  std::string_view name_of(std::string_view name) const {
    return std::ranges::find(of_.tensors, name, &golden_tensor::name)->name;
  }

  const golden_case& of_;
  const golden_inputs& tensors_;
  problem p_;
  std::vector<std::int32_t> cu_q_, cu_kv_;
  tensor_view ids_;
};

std::vector<golden_value> text_layer(const golden_case& of, const golden_inputs& tensors) {
  const auto input = [&](std::string_view name) { return tensors.find(name)->second; };
  reference::layer_inputs in;
  problem& p = in.p;
  p.hq = size32(of, "hq"), p.hkv = size32(of, "hkv"), p.hi = size32(of, "hidx");
  p.d = size32(of, "d"), p.di = size32(of, "didx"), p.block = size32(of, "block"), p.topk = size32(of, "topk");
  p.local_blocks = size32(of, "local"), p.init_blocks = size32(of, "init"), p.rope_dims = size32(of, "rot");
  p.rope_theta = of.number("theta"), p.norm_eps = of.number("eps");
  in.hidden = input("hidden");
  in.weights = {input("wq"),  input("wk"),     input("wv"),     input("wo"),      input("wiq"),
                input("wik"), input("q_norm"), input("k_norm"), input("iq_norm"), input("ik_norm")};
  auto result = reference::layer(in);
  return {integers("block_ids", std::move(result.ids)), numbers("output", std::move(result.output))};
}

std::vector<golden_value> vit3d(const golden_case& of, const golden_inputs& tensors) {
  const auto input = [&](std::string_view name) { return tensors.find(name)->second; };
  std::vector<std::int32_t> sides;
  for (const auto& grid : of.parameters["grids"])
    for (const auto& side : grid) sides.push_back(side.get<std::int32_t>());
  const tensor_view grids = view(sides, {std::ssize(sides) / 3, 3});
  problem p;
  p.hq = p.hkv = size32(of, "heads"), p.d = size32(of, "d"), p.vit_window = size32(of, "window");
  p.rope_theta = of.number("theta");
  const std::int64_t tokens = of.size("tokens"), merge = of.size("merge");

  const auto layout = reference::lay_out(grids, p.vit_window, merge);
  std::vector<std::int32_t> positions;
  for (const auto& at : layout.positions) positions.insert(positions.end(), at.begin(), at.end());
  std::vector<double> q_rope, k_rope, out, lse;
  in_pieces(tokens, [&](std::span<const std::int64_t> rows) {
    for (const auto& r : reference::rope3d({p, input("q"), input("k"), grids, merge}, rows).rows) {
      q_rope.insert(q_rope.end(), r.q.begin(), r.q.end());
      k_rope.insert(k_rope.end(), r.k.begin(), r.k.end());
    }
  });
  // Whole segments, so that each is rotated once.
  for (std::size_t first = 0, end; first + 1 < layout.cu_segments.size(); first = end) {
    const auto begins = std::span(layout.cu_segments);
    for (end = first + 1; end + 1 < begins.size() && begins[end] - begins[first] < piece_of(tokens); ++end) continue;
    const auto rows = rows_from(begins[first], begins[end]);
    for (const auto& r : reference::vit3d({p, input("q"), input("k"), input("v"), grids, merge}, rows, {}).rows) {
      out.insert(out.end(), r.out.begin(), r.out.end());
      lse.push_back(r.lse);
    }
  }
  return {integers("cu_seqlens", layout.cu_segments),
          integers("positions", std::move(positions)),
          numbers("q_rope", std::move(q_rope)),
          numbers("k_rope", std::move(k_rope)),
          numbers("out", std::move(out)),
          numbers("lse", std::move(lse))};
}

}  // namespace

std::vector<golden_value> golden_results(const golden_case& of, const golden_inputs& tensors) {
  std::vector<golden_value> results = of.kind == "attention"    ? attention(of, tensors).results()
                                      : of.kind == "text_layer" ? text_layer(of, tensors)
                                                                : vit3d(of, tensors);
  const auto in_order = [&](const golden_value& v) {
    return std::ranges::find(of.tensors, v.tensor, &golden_tensor::name) - of.tensors.begin();
  };
  std::ranges::sort(results, {}, in_order);
  return results;
}

}  // namespace msabench
