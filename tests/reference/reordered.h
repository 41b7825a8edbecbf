// SPDX-License-Identifier: Apache-2.0
// The same problem in another order: what may not change a bit of any result. For every operator whose inputs have the
// usual names; each object owns what it changes, so it must outlive its use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "core/tensor_view.h"

namespace msabench::reference::testing {

inline void reverse_axis(tensor_view& t, std::size_t axis) {
  if (t.data == nullptr) return;
  auto& stride = t.desc.strides[axis];
  t.data = static_cast<const std::byte*>(t.data) + (t.desc.shape[axis] - 1) * stride * size_bytes(t.desc.type);
  stride = -stride;
}

// KV groups in reverse order, and with them their query heads (and the heads within a group), ids and index heads.
template <class Inputs>
Inputs with_reversed_groups(const Inputs& from) {
  Inputs in = from;
  for (tensor_view* t : {&in.q, &in.k, &in.v}) reverse_axis(*t, 1);
  if constexpr (requires { in.ids; }) reverse_axis(in.ids, 1);
  if constexpr (requires { in.q_idx; }) reverse_axis(in.q_idx, 1);
  return in;
}

// Sequences in reverse order; paged caches only. Row i of the result is row old_row(i) of the source.
template <class Inputs>
class reversed_sequences {
 public:
  explicit reversed_sequences(const Inputs& from) : in_(from) {
    if (!from.p.paged()) throw std::logic_error("sequences of a contiguous cache can't be reordered in place");
    cu_.push_back(0);
    for (std::int64_t b = from.p.batch - 1; b >= 0; --b) {
      for (std::int64_t row = from.cu_seqlens_q.int_at(b); row < from.cu_seqlens_q.int_at(b + 1); ++row)
        rows_.push_back(row);
      cu_.push_back(static_cast<std::int32_t>(rows_.size()));
    }
    in_.cu_seqlens_q.data = cu_.data();
    reverse_axis(in_.kv_lens, 0);
    reverse_axis(in_.block_table, 0);
    memory_.reserve(3);
    gather(in_.q);
    if constexpr (requires { in_.ids; }) gather(in_.ids);
    if constexpr (requires { in_.q_idx; }) gather(in_.q_idx);
    if constexpr (requires { in_.block_table_idx; }) reverse_axis(in_.block_table_idx, 0);
  }
  reversed_sequences(const reversed_sequences&) = delete;
  reversed_sequences& operator=(const reversed_sequences&) = delete;

  const Inputs& inputs() const { return in_; }
  std::int64_t old_row(std::int64_t row) const { return rows_[static_cast<std::size_t>(row)]; }

 private:
  void gather(tensor_view& t) {
    if (t.desc != packed(t.desc.type, t.desc.shape)) throw std::logic_error("rows are gathered from packed tensors");
    const auto bytes = static_cast<std::size_t>(t.desc.strides[0] * size_bytes(t.desc.type));
    auto& memory = memory_.emplace_back(rows_.size() * bytes);
    for (std::size_t row = 0; row < rows_.size(); ++row)
      std::memcpy(memory.data() + row * bytes,
                  static_cast<const std::byte*>(t.data) + static_cast<std::size_t>(rows_[row]) * bytes, bytes);
    t.data = memory.data();
  }

  Inputs in_;
  std::vector<std::int32_t> cu_;
  std::vector<std::int64_t> rows_;
  std::vector<std::vector<std::byte>> memory_;
};

// Query tokens first .. end - 1 of a single sequence whose tokens are all of the call, as a call of their own, made when
// the cache held `end` tokens.
template <class Inputs>
class chunk_of {
 public:
  chunk_of(const Inputs& from, std::int32_t first, std::int32_t end) : in_(from), cu_{0, end - first}, lens_{end} {
    in_.p.total_q = end - first;
    in_.p.max_kv_len = end;
    const auto skip = [&](tensor_view& t) {
      t.data = static_cast<const std::byte*>(t.data) + t.offset(first) * size_bytes(t.desc.type);
      t.desc.shape[0] = end - first;
    };
    skip(in_.q);
    if constexpr (requires { in_.ids; }) skip(in_.ids);
    if constexpr (requires { in_.q_idx; }) skip(in_.q_idx);
    in_.cu_seqlens_q.data = cu_.data();
    in_.kv_lens.data = lens_.data();
  }
  chunk_of(const chunk_of&) = delete;
  chunk_of& operator=(const chunk_of&) = delete;

  const Inputs& inputs() const { return in_; }
  std::vector<std::int64_t> rows() const {
    std::vector<std::int64_t> result;
    for (std::int64_t row = 0; row < cu_[1]; ++row) result.push_back(row);
    return result;
  }

 private:
  Inputs in_;
  std::vector<std::int32_t> cu_, lens_;
};

}  // namespace msabench::reference::testing
