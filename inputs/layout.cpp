// SPDX-License-Identifier: Apache-2.0
#include "inputs/layout.h"

#include <algorithm>
#include <string>
#include <utility>

namespace msabench {

namespace {

constexpr std::uint64_t page_bytes =
    4096;  // granule of bands; regions and guards are rounded to the machine's own pages
constexpr std::uint64_t smallest_guard = 64 << 10;
constexpr std::uint64_t largest_band = 64 << 10;
constexpr std::int64_t stride_granule_bytes = 16;

std::uint64_t bytes_of(const tensor_desc& desc, std::int64_t elements) {
  return static_cast<std::uint64_t>(elements * size_bytes(desc.type));
}

// One step along the outermost axis: a row of a token tensor or a table, a page of all heads.
std::uint64_t outer_step_bytes(const tensor_desc& desc) {
  return desc.strides.empty() ? 0 : bytes_of(desc, desc.strides.front());
}

// One step, or as far as a place is off that a 16-bit index or a 32-bit offset made negative.
std::uint64_t guard_of(const tensor_desc& desc) {
  constexpr std::int64_t most_16 = std::int64_t{1} << 15, most_32 = std::int64_t{1} << 31;
  std::uint64_t guard = std::max(smallest_guard, outer_step_bytes(desc));
  const std::int64_t span = desc.elements() == 0 ? 0 : desc.span_elements();
  if (span > 0 && desc.shape.front() > most_16) guard = std::max(guard, most_16 * outer_step_bytes(desc));
  if (bytes_of(desc, span) > most_32) guard = std::max<std::uint64_t>(guard, most_32);
  if (span > most_32) guard = std::max(guard, bytes_of(desc, most_32));
  return guard;
}

std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& shape, dtype type, std::int64_t innermost,
                                     bool padded) {
  const std::int64_t granule = stride_granule_bytes / size_bytes(type);
  std::vector<std::int64_t> strides(shape.size(), 1);
  std::int64_t step = innermost;
  for (std::size_t axis = shape.size(); axis-- > 1;) {
    // Different gaps on different axes: a kernel that takes one stride for another is seen.
    if (padded) step = (step + granule - 1) / granule * granule + granule * static_cast<std::int64_t>(1 + axis % 2);
    strides[axis - 1] = step;
    step *= std::max<std::int64_t>(1, shape[axis - 1]);
  }
  return strides;
}

std::shared_ptr<shared_region> new_region(const std::string& name, std::uint64_t bytes, std::uint64_t guard_bytes) {
  return std::make_shared<shared_region>(shared_region::create(name, bytes, guard_bytes));
}

}  // namespace

tensor_desc layout_of(const slot_rule& rule, const problem& p, const extents& e, bool padded) {
  tensor_desc desc{type_of(rule, p), shape_of(rule, p, e), {}};
  if (rule.where == slot::ids) {
    const id_layout layout = rule.dir == direction::in ? p.asked.in_id_layout : p.asked.out_id_layout;
    if (layout == id_layout::htk) std::swap(desc.shape[0], desc.shape[1]);
  }
  const bool half = p.layout == page_layout::fused && (rule.where == slot::k || rule.where == slot::v);
  desc.strides = strides_of(desc.shape, desc.type, desc.shape.back() * (half ? 2 : 1), padded);
  return desc;
}

buffer allocate_input(slot where, const tensor_desc& desc) {
  buffer b{where, direction::in, desc, nullptr, 0, {}};
  if (desc.elements() > 0)
    b.region = new_region("msabench." + std::string(name(where)), bytes_of(desc, desc.span_elements()), guard_of(desc));
  return b;
}

fused_cache allocate_fused(const tensor_desc& desc) {
  fused_cache out{{slot::k, direction::in, desc, nullptr, 0, {}}, {slot::v, direction::in, desc, nullptr, 0, {}}};
  if (desc.elements() == 0) return out;
  const std::uint64_t half = bytes_of(desc, desc.shape.back());
  out.k.region = out.v.region = new_region("msabench.kv", bytes_of(desc, desc.span_elements()) + half, guard_of(desc));
  out.v.offset = half;
  return out;
}

buffer allocate_output(slot where, const tensor_desc& desc) {
  const std::uint64_t wanted = std::min(std::max<std::uint64_t>(256, outer_step_bytes(desc)), largest_band);
  const std::uint64_t band = (wanted + page_bytes - 1) / page_bytes * page_bytes;
  buffer b{where, direction::out, desc, nullptr, band, {}};
  b.region = new_region("msabench." + std::string(name(where)), 2 * band + bytes_of(desc, desc.span_elements()),
                        guard_of(desc));
  return b;
}

}  // namespace msabench
