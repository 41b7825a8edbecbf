// SPDX-License-Identifier: Apache-2.0
// Scales of a cache whose stored values count times them (docs/contract.md, section 9).
#pragma once

#include <cstdint>
#include <string_view>

#include "core/problem.h"
#include "core/tensor_view.h"

namespace msabench::reference {

class cache_scale {
 public:
  // `scale`: absent, [1], [N,Hkv] or [pages,Hkv,page_size]. Holds references: problem and views must outlive it.
  // suite_error, which begins with `name`, for any other shape.
  cache_scale(std::string_view name, const problem& p, const tensor_view& scale, const tensor_view& block_table,
              const tensor_view& cu_seqlens_kv);

  bool present() const { return static_cast<bool>(scale_); }
  // Of a key of a sequence and a KV head; 1 if absent.
  double at(std::int64_t sequence, std::int64_t key, std::int64_t head) const;

 private:
  const problem& p_;
  const tensor_view &scale_, &table_, &cu_;
  bool one_;
};

}  // namespace msabench::reference
