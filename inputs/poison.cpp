// SPDX-License-Identifier: Apache-2.0
#include "inputs/poison.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

namespace msabench {

namespace {

// A stretch of repeated poison; a multiple of every element size.
constexpr std::size_t stretch_bytes = 4096;
using stretch = std::array<std::byte, stretch_bytes>;

stretch make_stretch(dtype t, int launch, std::uint64_t seed) {
  const std::uint64_t bits = poison_bits(t, launch, seed);
  const auto size = static_cast<std::size_t>(size_bytes(t));
  stretch out;
  for (std::size_t at = 0; at < stretch_bytes; at += size) std::memcpy(out.data() + at, &bits, size);
  return out;
}

// Finds bytes of a region that no longer hold its poison. Elements lie at multiples of their size from the region's
// start.
class searcher {
 public:
  searcher(std::span<const std::byte> region, dtype t, int launch, std::uint64_t seed)
      : region_(region), expected_(make_stretch(t, launch, seed)) {}

  // The first changed byte in [begin, end) of the region.
  std::optional<std::uint64_t> first_change(std::uint64_t begin, std::uint64_t end) const {
    while (begin < end) {
      const std::uint64_t phase = begin % stretch_bytes;
      const std::uint64_t count = std::min(end - begin, stretch_bytes - phase);
      const std::byte* const seen = region_.data() + begin;
      const std::byte* const want = expected_.data() + phase;
      if (std::memcmp(seen, want, count) != 0) {
        const auto at = std::mismatch(seen, seen + count, want).first;
        return begin + static_cast<std::uint64_t>(at - seen);
      }
      begin += count;
    }
    return std::nullopt;
  }

 private:
  std::span<const std::byte> region_;
  stretch expected_;
};

// The tensor's elements as stretches without gaps: the innermost axes that are packed are one stretch.
struct stretches {
  std::size_t outer_axes;  // axes 0 .. outer_axes - 1 are walked
  std::int64_t elements;   // of one stretch
};

// `row_axis` always stays an axis of its own, so that its rows can be told apart.
stretches split_at_gaps(const tensor_desc& desc, int row_axis) {
  std::size_t axis = desc.shape.size();
  std::int64_t elements = 1;
  while (axis > 0 && desc.strides[axis - 1] == elements && static_cast<int>(axis) - 1 != row_axis)
    elements *= desc.shape[--axis];
  return {axis, elements};
}

}  // namespace

void fill_poison(std::span<std::byte> bytes, dtype t, int launch, std::uint64_t seed) {
  const std::uint64_t bits = poison_bits(t, launch, seed);
  std::size_t done = std::min(bytes.size(), static_cast<std::size_t>(size_bytes(t)));
  if (done == 0) return;
  std::memcpy(bytes.data(), &bits, done);
  // Copies of what is there already, of no more than stays in the cache.
  while (done < bytes.size()) {
    const std::size_t count = std::min({done, bytes.size() - done, stretch_bytes});
    std::memcpy(bytes.data() + done, bytes.data(), count);
    done += count;
  }
}

void fill_poison_in_parts(std::span<std::byte> bytes, dtype t, int launch, std::uint64_t seed) {
  // A multiple of every element size, so that each part begins like the whole.
  constexpr std::size_t part = std::size_t{4} << 20;
  const auto parts = static_cast<std::int64_t>((bytes.size() + part - 1) / part);
#pragma omp parallel for schedule(static) if (parts > 4)
  for (std::int64_t i = 0; i < parts; ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * part;
    fill_poison(bytes.subspan(at, std::min(part, bytes.size() - at)), t, launch, seed);
  }
}

void poison_outputs(input_set& set, int launch, std::uint64_t seed) {
  for (buffer& output : set.outputs)
    if (output.region) fill_poison({output.region->data(), output.region->bytes()}, output.desc.type, launch, seed);
}

damage find_damage(const buffer& output, std::int64_t valid_rows, int row_axis, int launch, std::uint64_t seed) {
  damage found;
  if (!output.region) return found;
  const tensor_desc& desc = output.desc;
  const searcher search({output.region->data(), output.region->bytes()}, desc.type, launch, seed);
  bool any = false;
  const auto look = [&](std::uint64_t begin, std::uint64_t end, bool damage::* kind) {
    const auto at = search.first_change(begin, end);
    if (!at) return;
    found.*kind = true;
    if (!any) found.at = static_cast<std::int64_t>(*at) - static_cast<std::int64_t>(output.offset);
    any = true;
  };

  const auto size = static_cast<std::uint64_t>(size_bytes(desc.type));
  const stretches parts = split_at_gaps(desc, row_axis);
  std::uint64_t seen_until = 0;  // everything below is looked at, or is the implementation's
  std::vector<std::int64_t> index(parts.outer_axes, 0);
  for (bool more = desc.elements() > 0; more;) {
    std::int64_t offset = 0;
    for (std::size_t a = 0; a < parts.outer_axes; ++a) offset += index[a] * desc.strides[a];
    const std::uint64_t begin = output.offset + static_cast<std::uint64_t>(offset) * size;
    const std::uint64_t end = begin + static_cast<std::uint64_t>(parts.elements) * size;
    look(seen_until, begin, &damage::band);
    if (row_axis >= 0 && index[static_cast<std::size_t>(row_axis)] >= valid_rows) look(begin, end, &damage::beyond_t);
    seen_until = end;

    std::size_t axis = parts.outer_axes;
    while (axis > 0 && ++index[axis - 1] == desc.shape[axis - 1]) index[--axis] = 0;
    more = axis > 0;
  }
  look(seen_until, output.region->bytes(), &damage::band);
  return found;
}

}  // namespace msabench
