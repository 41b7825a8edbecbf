// SPDX-License-Identifier: Apache-2.0
#include "judge/backward_samples.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "core/dtype.h"
#include "judge/answers.h"
#include "judge/input.h"
#include "judge/value_scan.h"
#include "reference/rows.h"

namespace msabench::judge {
namespace {

constexpr std::array gradients = {slot::dq, slot::dk, slot::dv};

reference::gradient_lines lines_of(const reference::backward_inputs& in, std::span<const std::int64_t> rows) {
  const reference::row_map places(in.cu_seqlens_q, in.kv_lens);
  reference::gradient_lines lines;
  lines.rows.assign(rows.begin(), rows.end());
  for (const std::int64_t row : rows) {
    const reference::row_place& at = places[row];
    if (at.kv_len == 0) continue;
    const std::int64_t first = in.cu_seqlens_q.int_at(at.sequence), end = in.cu_seqlens_q.int_at(at.sequence + 1);
    const std::int64_t position = (row - first) * (at.kv_len - 1) / std::max<std::int64_t>(1, end - first - 1);
    lines.keys.push_back(in.cu_seqlens_kv.int_at(at.sequence) + position);
  }
  std::ranges::sort(lines.keys);
  lines.keys.erase(std::unique(lines.keys.begin(), lines.keys.end()), lines.keys.end());
  return lines;
}

// Copies of these lines of an output, packed.
class packed_lines {
 public:
  packed_lines(const tensor_view& from, std::span<const std::int64_t> lines)
      : desc_(packed(from.desc.type, {std::ssize(lines), from.desc.shape[1], from.desc.shape[2]})),
        bytes_(static_cast<std::size_t>(desc_.elements() * size_bytes(desc_.type))) {
    const auto size = static_cast<std::size_t>(size_bytes(desc_.type));
    const auto width = static_cast<std::size_t>(desc_.shape[2]) * size;
    std::byte* to = bytes_.data();
    for (const std::int64_t line : lines)
      for (std::int64_t head = 0; head < desc_.shape[1]; ++head, to += width)
        std::memcpy(to,
                    static_cast<const std::byte*>(from.data) + static_cast<std::size_t>(from.offset(line, head)) * size,
                    width);
  }
  tensor_view view() const { return {bytes_.data(), desc_}; }

 private:
  tensor_desc desc_;
  std::vector<std::byte> bytes_;
};

}  // namespace

backward_samples::backward_samples(const subject& what, std::span<const std::int64_t> rows)
    : what_(what),
      in_(backward_inputs_of(what_)),
      r_(resolve(what.agreed, what.declared)),
      err_(backward_error_of(what, what.declared)),
      lines_(msabench::judge::lines_of(in_, rows)),
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
    const std::int64_t lines = where == slot::dq ? places.total_rows() : keys;
    for (std::int64_t line = 0; line < lines; ++line)
      for (std::int64_t head = 0; head < want.heads; ++head)
        scan.expect_finite({where, &whole, whole.offset(line, head), want.channels, {line, head}});
    const auto& of = lines_of(where);
    for (std::size_t i = 0; i < of.size(); ++i)
      for (std::int64_t head = 0; head < want.heads; ++head)
        if (want.chain[want.line(static_cast<std::int64_t>(i), head)] == 0)
          scan.expect_exactly({where, &whole, whole.offset(of[i], head), want.channels, {of[i], head}}, 0);
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

void backward_samples::answer(answers& into, const launch&) const {
  for (const slot where : gradients) {
    const reference::gradient& g = where == slot::dq ? want_.dq : where == slot::dk ? want_.dk : want_.dv;
    for (std::int64_t line = 0; line < g.rows; ++line)
      for (std::int64_t head = 0; head < g.heads; ++head)
        for (std::int64_t c = 0; c < g.channels; ++c) {
          const std::size_t at = g.element(line, head, c);
          const bool is_zero = g.chain[g.line(line, head)] == 0;
          into.set(where, std::vector{lines_of(where)[static_cast<std::size_t>(line)], head, c}, g.value[at],
                   is_zero ? 0 : limit_of_gradient(g, at, err_.sums).total);
        }
  }
}

}  // namespace msabench::judge
