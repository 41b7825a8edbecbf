// SPDX-License-Identifier: Apache-2.0
// Family recorded: tensors of a safetensors file, named like the slots and packed: q [T,Hq,d], k and v [N,Hkv,d], of the
// index branch q_idx [T,Hi,di] and k_idx [N,di], all in the case's storage type, and ids [T,Hkv,topk] (I32), of attend.
// Tokens of one sequence follow those of the one before; where pages, poison and guards lie is up to the case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "core/case.h"
#include "core/dtype.h"
#include "core/problem.h"
#include "core/safetensors.h"

namespace msabench {

// Finds FOLDER/NAME.safetensors of a case recorded.NAME and notes path and hash in it; other cases stay as they are.
// usage_error, one line, if there is no folder or file, or if a tensor is missing, has another type or shape than the case
// asks for, holds what is not finite, or ids that are not canonical (docs/contract.md, section 4).
void attach_recording(case_spec& c, const std::filesystem::path& folder);

// The attached file, held in memory. suite_error if there is none, usage_error if it has changed since.
std::shared_ptr<const safetensors_file> open_recording(const case_spec& c);

// One tensor of it, as it is stored.
class recorded_tensor {
 public:
  recorded_tensor(std::shared_ptr<const safetensors_file> file, slot where);
  const std::byte* at(std::int64_t element) const;
  dtype type() const { return type_; }

 private:
  std::shared_ptr<const safetensors_file> file_;
  std::span<const std::byte> bytes_;
  dtype type_;
};

// The recorded ids of (row, head), without the -1 behind them.
std::vector<std::int32_t> recorded_ids(const recorded_tensor& ids, const problem& p, std::int64_t row,
                                       std::int64_t head);

}  // namespace msabench
