// SPDX-License-Identifier: Apache-2.0
#include "reference/cache_scale.h"

#include <fmt/format.h>

#include "core/error.h"

namespace msabench::reference {

cache_scale::cache_scale(std::string_view name, const problem& p, const tensor_view& scale,
                         const tensor_view& block_table, const tensor_view& cu_seqlens_kv)
    : p_(p), scale_(scale), table_(block_table), cu_(cu_seqlens_kv) {
  const auto& shape = scale.desc.shape;
  one_ = shape.size() == 1 && shape[0] == 1;
  if (!present() || one_) return;
  const std::size_t axes = p.paged() ? 3 : 2;
  if (shape.size() != axes || shape[1] != p.hkv || (p.paged() && shape[2] != p.page_size))
    throw suite_error(fmt::format("{}: scales of a cache must be [1], [N,Hkv] or [pages,Hkv,page_size]", name));
}

double cache_scale::at(std::int64_t sequence, std::int64_t key, std::int64_t head) const {
  if (!present()) return 1;
  if (one_) return scale_.at(0);
  if (!p_.paged()) return scale_.at(cu_.int_at(sequence) + key, head);
  return scale_.at(table_.int_at(sequence, key / p_.page_size), head, key % p_.page_size);
}

}  // namespace msabench::reference
