// SPDX-License-Identifier: Apache-2.0
#include "m3_problem.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <stdexcept>
#include <string>

#include "core/generator.h"
#include "reference/rows.h"

namespace msabench::reference::testing {
namespace {

std::vector<std::uint16_t> normals(const char* slot, std::int64_t count) {
  constexpr std::int64_t piece = 1 << 20;
  std::vector<std::uint16_t> values(static_cast<std::size_t>(count));
  const stream numbers("reference/speed", slot, 0);
#pragma omp parallel for
  for (std::int64_t first = 0; first < count; first += piece)
    numbers.fill_normal(values.data() + first, bf16, static_cast<std::uint64_t>(first),
                        static_cast<std::uint64_t>(std::min(piece, count - first)));
  return values;
}

template <class T>
tensor_view view(const std::vector<T>& data, dtype type, std::vector<std::int64_t> shape) {
  return {data.data(), packed(type, std::move(shape))};
}

// A line "name: 123 kB" of the kernel's account of this process.
std::int64_t status_bytes(const std::string& name) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name + ":")) continue;
    const char* digits = line.data() + line.find_first_of("0123456789");
    std::int64_t kib = 0;
    std::from_chars(digits, line.data() + line.size(), kib);
    return kib * 1024;
  }
  throw std::runtime_error("/proc/self/status has no " + name);
}

}  // namespace

m3_problem::m3_problem(const m3_shape& s)
    : cu_q_{0, static_cast<std::int32_t>(s.q_len)}, lens_{static_cast<std::int32_t>(s.kv_len)} {
  p_.hq = s.hq, p_.hkv = p_.hi = s.hkv, p_.d = p_.di = s.d;
  p_.block = s.block, p_.topk = s.topk, p_.local_blocks = 1;
  p_.layout = page_layout::paged, p_.page_size = s.block;
  p_.batch = 1, p_.total_q = p_.max_q_len = s.q_len, p_.max_kv_len = p_.total_kv = s.kv_len;
  p_.q = p_.kv = p_.out = p_.q_idx = p_.k_idx = bf16;

  const std::int64_t pages = p_.max_pages();
  p_.pool_pages = pages;
  for (std::int64_t page = 0; page < pages; page += 2) table_.push_back(static_cast<std::int32_t>(page));
  for (std::int64_t page = 1; page < pages; page += 2) table_.push_back(static_cast<std::int32_t>(page));
  for (std::int64_t page = pages; page-- > 0;) table_idx_.push_back(static_cast<std::int32_t>(page));

  q_ = normals("q", s.q_len * s.hq * s.d);
  k_ = normals("k", pages * s.block * s.hkv * s.d);
  v_ = normals("v", pages * s.block * s.hkv * s.d);
  q_idx_ = normals("q_idx", s.q_len * p_.hi * p_.di);
  k_idx_ = normals("k_idx", pages * s.block * p_.di);

  for (std::int64_t row = 0; row < s.q_len; ++row) {
    const std::int64_t own = (s.kv_len - s.q_len + row) / s.block, first = std::max<std::int64_t>(0, own + 1 - s.topk);
    for (std::int64_t r = 0; r < s.hkv; ++r)
      for (std::int64_t slot = 0; slot < s.topk; ++slot)
        ids_.push_back(first + slot <= own ? static_cast<std::int32_t>(first + slot) : -1);
  }
}

dense_inputs m3_problem::for_dense() const {
  const std::vector<std::int64_t> cache{p_.pool_pages, p_.hkv, p_.page_size, p_.d};
  dense_inputs in{p_,
                  view(q_, bf16, {p_.total_q, p_.hq, p_.d}),
                  view(k_, bf16, cache),
                  view(v_, bf16, cache),
                  view(cu_q_, i32, {2}),
                  view(lens_, i32, {1}),
                  {},
                  view(table_, i32, {1, p_.pool_pages})};
  in.p.operation = op::dense;
  return in;
}

attend_inputs m3_problem::for_attend() const {
  const dense_inputs in = for_dense();
  return {p_,         in.q, in.k,          in.v, view(ids_, i32, {p_.total_q, p_.hkv, p_.topk}), in.cu_seqlens_q,
          in.kv_lens, {},   in.block_table};
}

msa_inputs m3_problem::for_msa() const {
  const dense_inputs in = for_dense();
  msa_inputs result;
  result.p = p_;
  result.p.operation = op::msa;
  result.q = in.q, result.k = in.k, result.v = in.v;
  result.q_idx = view(q_idx_, bf16, {p_.total_q, p_.hi, p_.di});
  result.k_idx = view(k_idx_, bf16, {p_.pool_pages, p_.page_size, p_.di});
  result.cu_seqlens_q = in.cu_seqlens_q, result.kv_lens = in.kv_lens, result.block_table = in.block_table;
  result.block_table_idx = view(table_idx_, i32, {1, p_.pool_pages});
  return result;
}

std::vector<std::int64_t> m3_problem::all_rows() const {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(p_.total_q));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int64_t>(i);
  return rows;
}

void reset_peak() {
  // Where the kernel refuses, the peak includes what was before: a limit is then missed too easily, never met.
  std::ofstream("/proc/self/clear_refs") << "5";
}
std::int64_t peak_bytes() { return status_bytes("VmHWM"); }
std::int64_t resident_bytes() { return status_bytes("VmRSS"); }

}  // namespace msabench::reference::testing
