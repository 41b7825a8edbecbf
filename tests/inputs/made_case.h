// SPDX-License-Identifier: Apache-2.0
// A case with its inputs, read through nothing but its tensors: what an implementation would find.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string_view>
#include <vector>

#include "core/case.h"
#include "core/generator.h"
#include "inputs/input_set.h"

namespace msabench {

struct made_case {
  explicit made_case(std::string_view name) : made_case(name, make_problem(parse_case(name))) {}
  made_case(std::string_view name, const problem& agreed)
      : c(parse_case(name)), p(agreed), set(make_inputs(c, p)), in(set.views()), rows_(find_rows()) {}

  case_spec c;
  problem p;
  input_set set;
  std::map<slot, tensor_view> in;

  const tensor_view& view(slot s) const { return in.at(s); }

  // Element offset of (sequence, key, KV head) in k or v.
  std::int64_t cache_offset(slot s, std::int64_t b, std::int64_t key, std::int64_t head) const {
    const tensor_view& cache = view(s);
    if (!p.paged()) return cache.offset(view(slot::cu_seqlens_kv).int_at(b) + key, head, 0);
    const std::int32_t page = view(slot::block_table).int_at(b, key / p.page_size);
    return cache.offset(page, head, key % p.page_size, 0);
  }
  // Where the packed generator stream of the slot is for it.
  std::uint64_t stream_index(std::int64_t b, std::int64_t key, std::int64_t head) const {
    if (!p.paged())
      return static_cast<std::uint64_t>(((view(slot::cu_seqlens_kv).int_at(b) + key) * p.hkv + head) * p.d);
    const std::int64_t page = view(slot::block_table).int_at(b, key / p.page_size);
    return static_cast<std::uint64_t>(((page * p.hkv + head) * p.page_size + key % p.page_size) * p.d);
  }
  double cache_at(slot s, std::int64_t b, std::int64_t key, std::int64_t head, std::int64_t channel) const {
    return load(view(s).data, p.kv, cache_offset(s, b, key, head) + channel);
  }
  std::int32_t id_at(std::int64_t row, std::int64_t head, std::int64_t i) const {
    const tensor_view& ids = view(slot::ids);
    return p.asked.in_id_layout == id_layout::htk ? ids.int_at(head, row, i) : ids.int_at(row, head, i);
  }
  // The set that contract section 5 gives to the ids of a row: distinct b in 0..own, ascending; for dense all of them.
  std::vector<std::int64_t> chosen(std::int64_t row, std::int64_t head) const;

  struct place {
    std::int64_t sequence, position, kv_len;
  };
  const std::vector<place>& rows() const { return rows_; }
  std::int64_t kv_len(std::int64_t b) const { return view(slot::kv_lens).int_at(b); }
  std::int64_t batch() const { return view(slot::kv_lens).desc.shape[0]; }

  // keys[b][head][key]: some row of the call selects and sees it.
  std::vector<std::vector<std::vector<bool>>> keys_read() const;

 private:
  std::vector<place> find_rows() const;
  std::vector<place> rows_;
};

}  // namespace msabench
