// SPDX-License-Identifier: Apache-2.0
// Tensors taken for something else than they are: another layout, other lengths, another place of a page. naive computes
// with what it is handed, so each of these is a run that hands it the wrong view.
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "kernels/mutants/mutant.h"

namespace msabench::mutants {
namespace {

using ints = std::vector<std::int32_t>;

/// Runs with what `see` makes of the arguments.
template <void (*See)(changed_args&, const msabench_args*)>
void seen_through(msabench_plugin& table) {
  table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
    changed_args seen(args);
    See(seen, args);
    return exact().run(plan, seen.get(), workspace, stream);
  };
}

/// As if nothing lay between the elements.
void pack(changed_args& seen, std::initializer_list<msabench_slot> slots) {
  for (const msabench_slot slot : slots)
    if (auto* view = seen.change(slot)) {
      std::int64_t stride = 1;
      for (std::int32_t axis = view->tensor.rank - 1; axis >= 0; --axis) {
        view->strides[axis] = stride;
        stride *= view->shape[axis];
      }
    }
}

void ids_packed(changed_args& seen, const msabench_args*) { pack(seen, {MSABENCH_IDS}); }
void caches_packed(changed_args& seen, const msabench_args*) { pack(seen, {MSABENCH_K, MSABENCH_V, MSABENCH_K_IDX}); }

void ids_by_head(changed_args& seen, const msabench_args*) {
  if (auto* ids = seen.change(MSABENCH_IDS)) {
    ids->strides[0] = ids->shape[2];
    ids->strides[1] = ids->shape[0] * ids->shape[2];
  }
}

ints ints_of(const msabench_tensor& tensor) {
  const auto* first = static_cast<const std::int32_t*>(tensor.data);
  return {first, first + tensor.shape[0]};
}

/// Contents of a run; no launch after the first one allocates.
ints& contents(std::size_t which) {
  static thread_local std::array<ints, 2> kept;
  return kept[which];
}

/// kv_lens as `change(lens, cu_seqlens_q)` leaves them.
template <class Change>
void with_lengths(changed_args& seen, const msabench_args* args, Change change) {
  const msabench_tensor* given = tensor_at(args, MSABENCH_KV_LENS);
  if (given == nullptr) return;
  ints& lens = contents(0);
  lens.assign(static_cast<const std::int32_t*>(given->data),
              static_cast<const std::int32_t*>(given->data) + given->shape[0]);
  change(lens, static_cast<const std::int32_t*>(tensor_at(args, MSABENCH_CU_SEQLENS_Q)->data));
  seen.change(MSABENCH_KV_LENS)->tensor.data = lens.data();
}

void longest_for_all(changed_args& seen, const msabench_args* args) {
  with_lengths(seen, args, [](ints& lens, const std::int32_t*) {
    if (!lens.empty()) std::fill(lens.begin(), lens.end(), *std::max_element(lens.begin(), lens.end()));
  });
}

void counted_from_chunk(changed_args& seen, const msabench_args* args) {
  with_lengths(seen, args, [](ints& lens, const std::int32_t* cu) {
    for (std::size_t b = 0; b < lens.size(); ++b) lens[b] = std::min(lens[b], cu[b + 1] - cu[b]);
  });
}

void counted_from_batch(changed_args& seen, const msabench_args* args) {
  with_lengths(seen, args, [](ints& lens, const std::int32_t* cu) {
    for (std::size_t b = 0; b < lens.size(); ++b) lens[b] = std::min(lens[b], cu[b + 1]);
  });
}

void as_many_rows_each(changed_args& seen, const msabench_args* args) {
  const msabench_tensor* given = tensor_at(args, MSABENCH_CU_SEQLENS_Q);
  if (given == nullptr || given->shape[0] < 2) return;
  ints& cu = contents(1);
  cu = ints_of(*given);
  const std::int64_t batch = given->shape[0] - 1, rows = cu.back();
  for (std::int64_t b = 0; b < batch; ++b)
    cu[static_cast<std::size_t>(b)] = static_cast<std::int32_t>(rows * b / batch);
  seen.change(MSABENCH_CU_SEQLENS_Q)->tensor.data = cu.data();
}

struct paged_cache {
  msabench_slot table, keys;
};
constexpr std::array<paged_cache, 2> paged_caches = {
    {{MSABENCH_BLOCK_TABLE, MSABENCH_K}, {MSABENCH_BLOCK_TABLE_IDX, MSABENCH_K_IDX}}};

/// Block tables as `change(entries, table, cache)` leaves them; entries lie as the table's.
template <class Change>
void with_tables(changed_args& seen, const msabench_args* args, Change change) {
  for (std::size_t i = 0; i < paged_caches.size(); ++i) {
    const msabench_tensor* given = tensor_at(args, paged_caches[i].table);
    const msabench_tensor* cache = tensor_at(args, paged_caches[i].keys);
    if (given == nullptr || cache == nullptr || extent_bytes(*given) == 0) continue;
    const auto* first = static_cast<const std::int32_t*>(given->data);
    ints& entries = contents(i);
    entries.assign(first, first + extent_bytes(*given) / sizeof(std::int32_t));
    change(entries, *given, *cache);
    seen.change(paged_caches[i].table)->tensor.data = entries.data();
  }
}

void pages_in_order(changed_args& seen, const msabench_args* args) {
  with_tables(seen, args, [](ints& entries, const msabench_tensor& table, const msabench_tensor& cache) {
    for (std::int64_t b = 0; b < table.shape[0]; ++b)
      for (std::int64_t column = 0; column < table.shape[1]; ++column)
        entries[static_cast<std::size_t>(b * table.strides[0] + column)] =
            static_cast<std::int32_t>((b * table.shape[1] + column) % cache.shape[0]);
  });
}

void tables_exchanged_at_three(changed_args& seen, const msabench_args* args) {
  with_tables(seen, args, [](ints& entries, const msabench_tensor& table, const msabench_tensor&) {
    if (table.shape[0] != 3) return;
    const auto line = entries.begin() + 2 * table.strides[0];
    std::swap_ranges(entries.begin(), entries.begin() + table.shape[1], line);
  });
}

struct page_place {
  std::int64_t page, stride, bytes_per_element;  ///< stride: elements from one page to the next
};

/// The page that a place lies in, rounded down: below the cache they are negative.
std::int64_t page_at(std::int64_t units, std::int64_t units_per_page) {
  const std::int64_t page = units / units_per_page;
  return page * units_per_page > units ? page - 1 : page;
}

/// Tables whose entries lead where a number or offset leads that has been cut.
template <std::int64_t (*Cut)(const page_place&)>
void pages_cut(changed_args& seen, const msabench_args* args) {
  with_tables(seen, args, [](ints& entries, const msabench_tensor&, const msabench_tensor& cache) {
    for (std::int32_t& page : entries)
      page = static_cast<std::int32_t>(Cut({page, cache.strides[0], cache.dtype.bits / 8}));
  });
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

/// Rows from 65 536 on are those of a grid that was cut to 16 bits: never written.
void rows_cut(msabench_plugin& table) {
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
}

constexpr mutant mutants[] = {
    {"IDX-2.a", "ids [T,H,k] read or written as [H,T,k]", nullptr, seen_through<ids_by_head>},
    {"IDX-3.a", "a strided view of ids taken for contiguous", nullptr, seen_through<ids_packed>},
    {"IDX-3.b", "a strided view of keys and values taken for contiguous", nullptr, seen_through<caches_packed>},
    {"IDX-6.a", "the length of the longest sequence used for every row", nullptr, seen_through<longest_for_all>},
    {"SEL-5.a", "the own block counted from the start of the packed batch", nullptr, seen_through<counted_from_batch>},
    {"SEL-5.b", "the own block counted from the start of the chunk", nullptr, seen_through<counted_from_chunk>},
    {"CAUS-1.a", "queries aligned to the first keys instead of the last", nullptr, seen_through<counted_from_chunk>},
    {"PAGE-1.a", "pages read in the order of the pool, whatever the table says", nullptr, seen_through<pages_in_order>},
    {"PAGE-2.a", "the number of a page cut to 16 bits", nullptr, seen_through<pages_cut<cut_page<std::uint16_t>>>},
    {"PAGE-2.b", "the number of a page cut to 16 bits with sign", nullptr,
     seen_through<pages_cut<cut_page<std::int16_t>>>},
    {"PAGE-2.c", "a grid of 65 536 rows at most: later ones are not written", nullptr, rows_cut},
    {"PAGE-3.a", "the offset of a page in elements cut to 32 bits", nullptr,
     seen_through<pages_cut<cut_elements<std::uint32_t>>>},
    {"PAGE-3.b", "the offset of a page in elements cut to 32 bits with sign", nullptr,
     seen_through<pages_cut<cut_elements<std::int32_t>>>},
    {"PAGE-3.c", "the offset of a page in bytes cut to 32 bits", nullptr,
     seen_through<pages_cut<cut_bytes<std::uint32_t>>>},
    {"PAGE-3.d", "the offset of a page in bytes cut to 32 bits with sign", nullptr,
     seen_through<pages_cut<cut_bytes<std::int32_t>>>},
    {"GQA-2.a", "tables of the first and the last sequence exchanged where there are three", nullptr,
     seen_through<tables_exchanged_at_three>},
    {"GQA-2.c", "the sequence of a row found as if all had equally many rows", nullptr,
     seen_through<as_many_rows_each>},
};

}  // namespace

std::span<const mutant> tensor_mutants() { return mutants; }

}  // namespace msabench::mutants
