// SPDX-License-Identifier: Apache-2.0
// What judges gradients by samples: which keys go with sampled rows, and copies of lines of an output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor_view.h"
#include "judge/answers.h"
#include "judge/gradient_checks.h"
#include "judge/value_scan.h"
#include "reference/gradient.h"

namespace msabench::judge {

// These rows, and keys as far along their sequence as the rows are: those at the rows' own positions where all tokens are
// queries. Tensors as in docs/contract.md; contiguous.
reference::gradient_lines lines_beside(std::span<const std::int64_t> rows, const tensor_view& cu_seqlens_q,
                                       const tensor_view& kv_lens, const tensor_view& cu_seqlens_kv);

// Copies of these lines of an output, packed. Of two or three dimensions.
class packed_lines {
 public:
  packed_lines(const tensor_view& from, std::span<const std::int64_t> lines);
  tensor_view view() const { return {bytes_.data(), desc_}; }

 private:
  tensor_desc desc_;
  std::vector<std::byte> bytes_;
};

// K0: the first `count` lines of an output are written and finite, and of the sampled ones, `lines` as `want` has them,
// those exactly 0 to which nothing adds.
void scan_sampled(value_scan& scan, slot where, const tensor_view& output, std::int64_t count,
                  const reference::gradient& want, std::span<const std::int64_t> lines);

// The same lines as answers, each element with its limit; `output` tells how the output is indexed.
void answer_sampled(answers& into, slot where, const tensor_view& output, const reference::gradient& want,
                    std::span<const std::int64_t> lines, const reference::sum_error& err);

}  // namespace msabench::judge
