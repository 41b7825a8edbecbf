// SPDX-License-Identifier: Apache-2.0
// Places computed in too few bits: right in every pool and batch that is small. Each fault is the run of its plugin, which
// hands naive a block table whose entries lead where the cut number or offset leads.
#include <algorithm>
#include <array>
#include <vector>

#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

struct page_place {
  std::int64_t page, stride, bytes_per_element;  // stride: elements from one page to the next
};

/// The page that a place lies in, rounded down: below the cache they are negative.
std::int64_t page_at(std::int64_t units, std::int64_t units_per_page) {
  const std::int64_t page = units / units_per_page;
  return page * units_per_page > units ? page - 1 : page;
}

template <class Cut>
msabench_status run_with_cut_pages(msabench_plan* plan, const msabench_args* args, void* workspace, void* stream,
                                   Cut cut) {
  constexpr std::array<std::array<msabench_slot, 2>, 2> caches = {
      {{MSABENCH_BLOCK_TABLE, MSABENCH_K}, {MSABENCH_BLOCK_TABLE_IDX, MSABENCH_K_IDX}}};
  std::vector<const msabench_tensor*> slots(args->slot, args->slot + args->slot_count);
  std::array<std::vector<std::int32_t>, caches.size()> entries;
  std::array<msabench_tensor, caches.size()> tables;
  for (std::size_t i = 0; i < caches.size(); ++i) {
    const msabench_tensor* given = tensor_at(args, caches[i][0]);
    const msabench_tensor* cache = tensor_at(args, caches[i][1]);
    if (given == nullptr || cache == nullptr || extent_bytes(*given) == 0) continue;
    const auto* first = static_cast<const std::int32_t*>(given->data);
    for (std::size_t at = 0; at < extent_bytes(*given) / sizeof(std::int32_t); ++at)
      entries[i].push_back(static_cast<std::int32_t>(cut({first[at], cache->strides[0], cache->dtype.bits / 8})));
    tables[i] = *given;
    tables[i].data = entries[i].data();
    slots[caches[i][0]] = &tables[i];
  }
  const msabench_args changed_args{sizeof changed_args, args->slot_count, slots.data()};
  return exact().run(plan, &changed_args, workspace, stream);
}

template <class Number>
std::int64_t cut_page(const page_place& at) {
  return static_cast<Number>(at.page);
}

template <class Number>
std::int64_t cut_bytes(const page_place& at) {
  const std::int64_t step = at.stride * at.bytes_per_element;
  return page_at(static_cast<Number>(at.page * step), step);
}

template <class Number>
std::int64_t cut_elements(const page_place& at) {
  return page_at(static_cast<Number>(at.page * at.stride), at.stride);
}

template <std::int64_t (*cut)(const page_place&)>
const msabench_plugin* with_cut(const msabench_host* host, const char* name) {
  return changed(host, name, [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      return run_with_cut_pages(plan, args, workspace, stream, cut);
    };
  });
}

}  // namespace

/// The page's number as uint16_t.
const msabench_plugin* page_in_16_bits(const msabench_host* host) {
  return with_cut<cut_page<std::uint16_t>>(host, "page_in_16_bits");
}

/// The page's number as int16_t.
const msabench_plugin* page_in_signed_16_bits(const msabench_host* host) {
  return with_cut<cut_page<std::int16_t>>(host, "page_in_signed_16_bits");
}

/// The page's offset in bytes as uint32_t.
const msabench_plugin* bytes_in_32_bits(const msabench_host* host) {
  return with_cut<cut_bytes<std::uint32_t>>(host, "bytes_in_32_bits");
}

/// The page's offset in bytes as int32_t.
const msabench_plugin* bytes_in_signed_32_bits(const msabench_host* host) {
  return with_cut<cut_bytes<std::int32_t>>(host, "bytes_in_signed_32_bits");
}

/// The page's offset in elements as uint32_t.
const msabench_plugin* elements_in_32_bits(const msabench_host* host) {
  return with_cut<cut_elements<std::uint32_t>>(host, "elements_in_32_bits");
}

/// The page's offset in elements as int32_t.
const msabench_plugin* elements_in_signed_32_bits(const msabench_host* host) {
  return with_cut<cut_elements<std::int32_t>>(host, "elements_in_signed_32_bits");
}

/// Rows from 65 536 on are those of a grid that was cut to 16 bits: never written.
const msabench_plugin* rows_in_16_bits(const msabench_host* host) {
  return changed(host, "rows_in_16_bits", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      constexpr std::int64_t most = 65536;
      const std::int64_t rows = tokens(args);
      if (rows <= most) return exact().run(plan, args, workspace, stream);
      const row_bytes first = row_of(output_of(args), most), last = row_of(output_of(args), rows - 1);
      const auto bytes = static_cast<std::size_t>(last.first + last.size - first.first);
      static thread_local std::array<unsigned char, 1 << 20> before;  // no allocation: rule R3 is another fault
      if (bytes > before.size()) return msabench_status{MSABENCH_INTERNAL};
      std::copy_n(first.first, bytes, before.begin());
      const msabench_status status = exact().run(plan, args, workspace, stream);
      std::copy_n(before.begin(), bytes, first.first);
      return status;
    };
  });
}

}  // namespace msabench::faults
