// SPDX-License-Identifier: Apache-2.0
#include "judge/backward_samples.h"

#include <array>
#include <map>

#include "judge/input.h"
#include "judge/sampled_lines.h"
#include "judge/value_scan.h"
#include "reference/rows.h"

namespace msabench::judge {
namespace {

constexpr std::array gradients = {slot::dq, slot::dk, slot::dv};

}  // namespace

backward_samples::backward_samples(const subject& what, std::span<const std::int64_t> rows)
    : what_(what),
      in_(backward_inputs_of(what_)),
      r_(resolve(what.agreed, what.declared)),
      err_(backward_error_of(what, what.declared)),
      lines_(lines_beside(rows, in_.cu_seqlens_q, in_.kv_lens, in_.cu_seqlens_kv)),
      want_(reference::attention_backward_lines(name(what.agreed.operation), in_,
                                                {input(what_, slot::out), input(what_, slot::lse)}, lines_, err_)) {}

std::vector<check_result> backward_samples::check(const launch& outputs, int launch_index,
                                                  std::uint64_t poison_seed) const {
  value_scan scan(launch_index, poison_seed, "not exactly 0, though no row and key have a part in it");
  std::map<slot, packed_lines> chosen;
  launch samples;
  const reference::row_map places(in_.cu_seqlens_q, in_.kv_lens);
  const std::int64_t keys = in_.cu_seqlens_kv.int_at(in_.cu_seqlens_kv.desc.shape[0] - 1);
  for (const slot where : gradients) {
    const tensor_view whole = gradient_output(outputs, where);
    const reference::gradient& want = where == slot::dq ? want_.dq : where == slot::dk ? want_.dk : want_.dv;
    const auto& of = lines_of(where);
    scan_sampled(scan, where, whole, where == slot::dq ? places.total_rows() : keys, want, of);
    samples.outputs[where] = chosen.try_emplace(where, whole, of).first->second.view();
  }
  std::vector<check_result> checks{scan.result()};
  for (check_result& c : check_gradient_values(what_, samples, want_, r_, err_)) {
    if (c.worst.where && !c.worst.index.empty())
      c.worst.index[0] = lines_of(*c.worst.where)[static_cast<std::size_t>(c.worst.index[0])];
    checks.push_back(std::move(c));
  }
  return checks;
}

void backward_samples::answer(answers& into, const launch& outputs) const {
  for (const slot where : gradients)
    answer_sampled(into, where, gradient_output(outputs, where),
                   where == slot::dq   ? want_.dq
                   : where == slot::dk ? want_.dk
                                       : want_.dv,
                   lines_of(where), err_.sums);
}

}  // namespace msabench::judge
