// SPDX-License-Identifier: Apache-2.0
#include "judge/kl_samples.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "core/error.h"
#include "judge/sampled_lines.h"
#include "reference/rows.h"

namespace msabench::judge {
namespace {

constexpr std::array gradients = {slot::dq_idx, slot::dk_idx};

// Many readers are what sums over lists of them go wrong with, so the dearest come first.
std::vector<std::int64_t> affordable(const reference::kl_inputs& in, const std::vector<std::int64_t>& keys,
                                     std::int64_t triples) {
  const std::vector<std::int64_t> costs = reference::kl_key_triples(in, keys);
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) { return costs[i]; });
  std::vector<std::int64_t> chosen;
  for (const std::size_t i : order) {
    if (costs[i] > triples) continue;
    triples -= costs[i];
    chosen.push_back(keys[i]);
  }
  std::ranges::sort(chosen);
  return chosen;
}

reference::gradient_lines lines_for(const reference::kl_inputs& in, std::span<const std::int64_t> rows,
                                    std::int64_t key_triples) {
  reference::gradient_lines lines = lines_beside(rows, in.cu_seqlens_q, in.kv_lens, in.cu_seqlens_kv);
  lines.keys = affordable(in, lines.keys, key_triples);
  if (lines.keys.empty()) throw suite_error("the oracle can't afford dk_idx of a single key");
  return lines;
}

}  // namespace

kl_samples::kl_samples(const subject& what, std::span<const std::int64_t> rows, std::int64_t key_triples)
    : what_(what),
      in_(kl_inputs_of(what_)),
      err_(kl_error_of(what.agreed, what.declared)),
      lines_(lines_for(in_, rows, key_triples)),
      want_(reference::kl_lines(in_, err_, lines_)) {}

std::vector<check_result> kl_samples::check(const launch& outputs, int launch_index, std::uint64_t poison_seed) const {
  value_scan scan(launch_index, poison_seed, "not exactly 0, though no row and key have a part in it");
  const std::int64_t rows = reference::row_map(in_.cu_seqlens_q, in_.kv_lens).total_rows();
  const std::int64_t keys = in_.cu_seqlens_kv.int_at(in_.cu_seqlens_kv.desc.shape[0] - 1);
  const tensor_view loss = kl_output(outputs, slot::loss);
  scan.expect_finite({slot::loss, &loss, 0, 1, {}});
  std::map<slot, packed_lines> chosen;
  launch samples;
  for (const slot where : gradients) {
    const tensor_view whole = kl_output(outputs, where);
    const bool of_rows = where == slot::dq_idx;
    scan_sampled(scan, where, whole, of_rows ? rows : keys, of_rows ? want_.dq_idx : want_.dk_idx, lines_of(where));
    samples.outputs[where] = chosen.try_emplace(where, whole, lines_of(where)).first->second.view();
  }
  scan_detached(scan, outputs, rows, keys);
  std::vector<check_result> checks{scan.result()};
  const roundoffs r = resolve(what_.agreed, what_.declared);
  for (check_result& c : check_kl_gradients(what_, samples, want_, r, err_)) {
    if (c.worst.where && !c.worst.index.empty())
      c.worst.index[0] = lines_of(*c.worst.where)[static_cast<std::size_t>(c.worst.index[0])];
    checks.push_back(std::move(c));
  }
  return checks;
}

void kl_samples::answer(answers& into, const launch& outputs) const {
  for (const slot where : gradients)
    answer_sampled(into, where, kl_output(outputs, where), where == slot::dq_idx ? want_.dq_idx : want_.dk_idx,
                   lines_of(where), err_.sums);
}

}  // namespace msabench::judge
