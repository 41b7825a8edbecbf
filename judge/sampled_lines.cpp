// SPDX-License-Identifier: Apache-2.0
#include "judge/sampled_lines.h"

#include <algorithm>
#include <cstring>

#include "core/dtype.h"
#include "reference/rows.h"

namespace msabench::judge {
namespace {

std::int64_t heads_of(const tensor_view& t) { return t.desc.shape.size() == 3 ? t.desc.shape[1] : 1; }

std::int64_t offset_of(const tensor_view& t, std::int64_t line, std::int64_t head) {
  return t.desc.shape.size() == 3 ? t.offset(line, head) : t.offset(line);
}

std::vector<std::int64_t> index_of(const tensor_view& t, std::int64_t line, std::int64_t head) {
  return t.desc.shape.size() == 3 ? std::vector{line, head} : std::vector{line};
}

std::vector<std::int64_t> shape_of(const tensor_view& from, std::int64_t lines) {
  std::vector<std::int64_t> shape = from.desc.shape;
  shape[0] = lines;
  return shape;
}

}  // namespace

reference::gradient_lines lines_beside(std::span<const std::int64_t> rows, const tensor_view& cu_seqlens_q,
                                       const tensor_view& kv_lens, const tensor_view& cu_seqlens_kv) {
  const reference::row_map places(cu_seqlens_q, kv_lens);
  reference::gradient_lines lines;
  lines.rows.assign(rows.begin(), rows.end());
  for (const std::int64_t row : rows) {
    const reference::row_place& at = places[row];
    if (at.kv_len == 0) continue;
    const std::int64_t first = cu_seqlens_q.int_at(at.sequence), end = cu_seqlens_q.int_at(at.sequence + 1);
    const std::int64_t position = (row - first) * (at.kv_len - 1) / std::max<std::int64_t>(1, end - first - 1);
    lines.keys.push_back(cu_seqlens_kv.int_at(at.sequence) + position);
  }
  std::ranges::sort(lines.keys);
  lines.keys.erase(std::unique(lines.keys.begin(), lines.keys.end()), lines.keys.end());
  return lines;
}

packed_lines::packed_lines(const tensor_view& from, std::span<const std::int64_t> lines)
    : desc_(packed(from.desc.type, shape_of(from, std::ssize(lines)))),
      bytes_(static_cast<std::size_t>(desc_.elements() * size_bytes(desc_.type))) {
  const auto size = static_cast<std::size_t>(size_bytes(desc_.type));
  const auto width = static_cast<std::size_t>(desc_.shape.back()) * size;
  std::byte* to = bytes_.data();
  for (const std::int64_t line : lines)
    for (std::int64_t head = 0; head < heads_of(from); ++head, to += width)
      std::memcpy(
          to, static_cast<const std::byte*>(from.data) + static_cast<std::size_t>(offset_of(from, line, head)) * size,
          width);
}

void scan_sampled(value_scan& scan, slot where, const tensor_view& output, std::int64_t count,
                  const reference::gradient& want, std::span<const std::int64_t> lines) {
  const auto span_of = [&](std::int64_t line, std::int64_t head) {
    return value_scan::span{where, &output, offset_of(output, line, head), want.channels, index_of(output, line, head)};
  };
  for (std::int64_t line = 0; line < count; ++line)
    for (std::int64_t head = 0; head < want.heads; ++head) scan.expect_finite(span_of(line, head));
  for (std::size_t i = 0; i < lines.size(); ++i)
    for (std::int64_t head = 0; head < want.heads; ++head)
      if (want.chain[want.line(static_cast<std::int64_t>(i), head)] == 0)
        scan.expect_exactly(span_of(lines[i], head), 0);
}

void answer_sampled(answers& into, slot where, const tensor_view& output, const reference::gradient& want,
                    std::span<const std::int64_t> lines, const reference::sum_error& err) {
  for (std::size_t i = 0; i < lines.size(); ++i)
    for (std::int64_t head = 0; head < want.heads; ++head)
      for (std::int64_t c = 0; c < want.channels; ++c) {
        const auto line = static_cast<std::int64_t>(i);
        const std::size_t at = want.element(line, head, c);
        const bool is_zero = want.chain[want.line(line, head)] == 0;
        std::vector<std::int64_t> index = index_of(output, lines[i], head);
        index.push_back(c);
        into.set(where, index, want.value[at], is_zero ? 0 : limit_of_gradient(want, at, err).total);
      }
}

}  // namespace msabench::judge
