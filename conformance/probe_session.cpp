// SPDX-License-Identifier: Apache-2.0
#include "conformance/probe_session.h"

#include <fmt/format.h>

#include "core/case.h"
#include "core/error.h"
#include "inputs/input_set.h"

namespace msabench {
namespace {

// The usual ones first.
constexpr const char* shapes[] = {"m3.tp4", "m3", "h8x2.d64.b32.k4.l1.i0"};
constexpr const char* layouts[] = {"paged", "contig", "fused"};

void write_rows(const input_set& set, slot where, std::int64_t keys, std::int64_t page_size,
                const std::function<double(std::int64_t, std::int64_t)>& value) {
  const buffer& to = *set.find(where);
  const tensor_view view = to.view();
  const auto& shape = view.desc.shape;
  const bool paged = shape.size() == 4;
  const std::int64_t heads = shape[1], channels = shape.back();
  for (std::int64_t j = 0; j < keys; ++j)
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t page = paged ? set.find(slot::block_table)->view().int_at(0, j / page_size) : 0;
      const std::int64_t first = paged ? view.offset(page, h, j % page_size, 0) : view.offset(j, h, 0);
      for (std::int64_t c = 0; c < channels; ++c)
        store(to.region->data() + to.offset, view.desc.type, first + c, value ? value(j, c) : 0);
    }
}

}  // namespace

probe_session::probe_session(executor& on, op operation, dtype type) : on_(on), type_(type) {
  std::string refused = "no answer";
  for (const char* shape : shapes)
    for (const char* layout : layouts) {
      prefix_ = fmt::format("{}/{}/q1.n", name(operation), shape);
      suffix_ = fmt::format("/{}.{}/random/s0", name(type), layout);
      const case_spec c = parse_case(fmt::format("{}1{}", prefix_, suffix_));
      const agreement agreed = negotiate(on, make_problem(c));
      if (agreed.answer.result != outcome::completed || !agreed.refused.empty() || !agreed.answer.answered) {
        refused = agreed.refused.empty() ? agreed.answer.message : agreed.refused;
        continue;
      }
      asked_ = fmt::format("{} {} {}.{}", name(operation), shape, name(type), layout);
      heads_ = c.shape.hq;
      channels_ = c.shape.d;
      block_ = c.shape.block;
      most_keys_ = std::int64_t{c.shape.topk} * c.shape.block;
      declared_ = negotiate(on, make_problem(case_of(most_keys_, 0.125)))
                      .answer.answered.value_or(*agreed.answer.answered)
                      .declared;
      return;
    }
  bad_input("--impl", on.info().name,
            fmt::format("takes no problem that the probes are made for: {}", one_line(refused, 200)),
            "probe another operator (--op) or type (--type)");
}

case_spec probe_session::case_of(std::int64_t keys, double scale) const {
  case_spec c = parse_case(prefix_ + "1" + suffix_);
  c.lengths.kv_len = keys;
  c.options.softmax_scale = scale;
  return c;
}

probe_answer probe_session::run(const probe_call& call) {
  const case_spec c = case_of(call.keys, call.scale);
  const agreement agreed = negotiate(on_, make_problem(c));
  const auto give_up = [&](const std::string& why) {
    bad_input("--impl", on_.info().name,
              fmt::format("does not run the probe of {} keys: {}", call.keys, one_line(why, 200)),
              "see `msabench check`");
  };
  if (agreed.answer.result != outcome::completed || !agreed.refused.empty())
    give_up(agreed.refused.empty() ? agreed.answer.message : agreed.refused);
  input_set set = make_inputs(c, agreed.agreed);
  const buffer& q = *set.find(slot::q);
  const tensor_view queries = q.view();
  for (std::int64_t h = 0; h < heads_; ++h)
    for (std::int64_t i = 0; i < channels_; ++i)
      store(q.region->data() + q.offset, type_, queries.offset(0, h, i), call.q ? call.q(h, i) : 0);
  write_rows(set, slot::k, call.keys, agreed.agreed.page_size, call.k);
  write_rows(set, slot::v, call.keys, agreed.agreed.page_size, call.v);
  for (buffer& b : set.inputs) b.generated = {};
  set.inputs_checksum = checksum_inputs(set);

  run_spec how;
  how.launches = 1;
  observation seen = on_.execute(set, how);
  if (seen.result != outcome::completed || seen.launches.empty()) give_up(seen.message);
  launch& l = seen.launches.back();
  const profile delivers = agreed.answer.answered->delivers;
  adapt_outputs(delivers, l);
  probe_answer answer;
  const tensor_view& out = l.outputs.at(slot::out);
  for (std::int64_t h = 0; h < heads_; ++h) {
    auto& line = answer.out.emplace_back();
    for (std::int64_t i = 0; i < channels_; ++i) line.push_back(out.at(0, h, i));
  }
  const auto lse = l.outputs.find(slot::lse);
  if (lse != l.outputs.end() && delivers.lse != lse_form::none)
    for (std::int64_t h = 0; h < heads_; ++h) answer.lse.push_back(lse->second.at(0, h));
  return answer;
}

}  // namespace msabench
