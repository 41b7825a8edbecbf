// SPDX-License-Identifier: Apache-2.0
#include "inputs/cache_fill.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "inputs/cache_tiles.h"
#include "inputs/operators.h"
#include "inputs/poison.h"
#include "inputs/scales.h"

namespace msabench {

namespace {

// Normal values times this stay below 1e4 (e4m3: 448).
double far_scale(dtype type) { return type == e4m3 ? 0x1p6 : 0x1p11; }

// Fills the rows of tiles of one of k and v.
class half_filler {
 public:
  half_filler(const cache_contents& job, buffer& into)
      : job_(job),
        into_(into),
        write_(into.where == slot::v ? job.write_v : job.write_k),
        values_(name_without_seed(job.definition), name(into.where), job.definition.seed),
        d_(job.width),
        row_bytes_(static_cast<std::size_t>(d_ * size_bytes(into.desc.type))) {}

  // Whether the tile holds nothing but its part of the stream, row behind row.
  bool fill(const cache_tile& tile, std::vector<std::byte>& scratch) const {
    const dtype type = into_.desc.type;
    scratch.resize(tile.rows.size() * row_bytes_);
    const bool any_value = std::any_of(tile.rows.begin(), tile.rows.end(),
                                       [](const cache_row& r) { return r.state != row_state::poison; });
    // One call for the tile: short ones cost nearly as much.
    if (any_value)
      values_.fill_normal(scratch.data(), type, static_cast<std::uint64_t>(tile.first_row * d_),
                          tile.rows.size() * static_cast<std::size_t>(d_));
    else
      poison(scratch, tile);
    for (std::size_t i = 0; i < tile.rows.size() && any_value; ++i) {
      std::byte* const row = scratch.data() + i * row_bytes_;
      const cache_row& r = tile.rows[i];
      if (r.state == row_state::value) {
        if (write_) write_(r.place, row);
      } else if (r.state == row_state::far) {
        enlarge(row);
      } else {
        poison({row, row_bytes_}, tile);
      }
    }
    copy_out(tile, scratch);
    return !write_ && packed(tile) &&
           std::ranges::all_of(tile.rows, [](const cache_row& r) { return r.state == row_state::value; });
  }

  const stream& values() const { return values_; }

 private:
  // A power of two: exact, as neither the values nor the results are near an end of any format.
  void enlarge(std::byte* row) const {
    std::vector<double> values(static_cast<std::size_t>(d_));
    widen(row, into_.desc.type, 0, d_, values.data());
    for (double& x : values) x *= far_scale(into_.desc.type);
    narrow(values.data(), d_, row, into_.desc.type, 0);
  }

  bool packed(const cache_tile& tile) const {
    return tile.rows.back().offset - tile.rows.front().offset == (std::ssize(tile.rows) - 1) * d_;
  }

  void copy_out(const cache_tile& tile, std::span<const std::byte> values) const {
    const std::int64_t size = size_bytes(into_.desc.type);
    std::byte* const base = into_.region->data() + into_.offset;
    if (packed(tile)) {
      std::memcpy(base + tile.rows.front().offset * size, values.data(), values.size());
      return;
    }
    for (std::size_t i = 0; i < tile.rows.size(); ++i)
      std::memcpy(base + tile.rows[i].offset * size, values.data() + i * row_bytes_, row_bytes_);
  }

  // NaN with a payload, or all bits set, by turns: both are NaN in every float format. A maximum passes over NaN, so that of
  // index keys every other tile holds finite numbers that outweigh all real ones.
  void poison(std::span<std::byte> bytes, const cache_tile& tile) const {
    if (into_.where == slot::k_idx && tile.number % 2 == 0) {
      const std::int64_t size = size_bytes(into_.desc.type);
      for (std::int64_t i = 0; i < std::ssize(bytes) / size; ++i)
        store(bytes.data(), into_.desc.type, i, into_.desc.type == e4m3 ? 448 : 1e4);
    } else if (tile.number % 2 == 0) {
      fill_poison(bytes, into_.desc.type, input_poison_launch, job_.definition.seed);
    } else {
      std::memset(bytes.data(), 0xFF, bytes.size());
    }
  }

  const cache_contents& job_;
  buffer& into_;
  const std::function<void(const key_place&, void*)>& write_;
  stream values_;
  std::int64_t d_;
  std::size_t row_bytes_;
};

// Elements between the rows of a tile, and behind its last one up to the next tile.
bool has_gaps(const buffer& b) { return b.desc.strides != packed_strides(b.desc.shape); }

void fill_region(const cache_contents& job, const cache_tiles& tiles, std::span<buffer* const> halves) {
  buffer& front = *halves.front();
  if (!front.region) return;
  const dtype type = front.desc.type;
  const bool gaps = has_gaps(front);
  std::vector<half_filler> fillers;
  for (buffer* half : halves) fillers.emplace_back(job, *half);

  // Of tiles that are drawn in one piece, in elements of a half; the others have no count.
  struct piece {
    std::uint64_t offset = 0, first = 0, count = 0;
  };
  std::vector<std::vector<piece>> drawn(halves.size(), std::vector<piece>(static_cast<std::size_t>(tiles.count())));
  std::byte* const base = front.region->data();
  const std::int64_t count = tiles.count();
  const bool large = front.region->bytes() > small_bytes;
#pragma omp parallel if (large)
  {
    std::vector<std::byte> scratch;
    cache_tile tile;
#pragma omp for schedule(dynamic, 8)
    for (std::int64_t i = 0; i < count; ++i) {
      if (!tiles.filled(i)) continue;
      tiles.describe(i, tile);
      if (gaps) fill_poison({base + tile.begin, base + tile.end}, type, input_poison_launch, job.definition.seed);
      for (std::size_t half = 0; half < fillers.size(); ++half)
        if (fillers[half].fill(tile, scratch))
          drawn[half][static_cast<std::size_t>(i)] = {static_cast<std::uint64_t>(tile.rows.front().offset),
                                                      static_cast<std::uint64_t>(tile.first_row * job.width),
                                                      tile.rows.size() * static_cast<std::uint64_t>(job.width)};
    }
  }

  const std::uint64_t bytes = front.region->bytes();
  fill_poison({base + tiles.end(), base + bytes}, type, input_poison_launch, job.definition.seed);
  const std::vector<extent> contents = tiles.contents(bytes);
  for (std::size_t half = 0; half < halves.size(); ++half) {
    buffer& into = *halves[half];
    into.contents = contents;
    generated_runs list(into.where, type, fillers[half].values(), 1);
    for (const piece& p : drawn[half])
      if (p.count > 0)
        list.add(into.offset + p.offset * static_cast<std::uint64_t>(size_bytes(type)), p.first, p.count);
    into.generated = list.finish();
  }
}

// The unit of a cache that a scale belongs to.
std::uint64_t number_of(const batch& rows, bool shares_pages, std::int64_t heads, const key_place& at) {
  return static_cast<std::uint64_t>(((shares_pages ? 0 : rows.first_key(at.sequence)) + at.key) * heads + at.head);
}

using write_values = std::function<void(const key_place&, void*)>;

// The same values, where need be as what stored value and scale give together.
write_values divided(const cache_contents& job, bool shares_pages, const operand_scales& scales, dtype type,
                     write_values write) {
  if (!scales.present() || !scales.divides()) return write;
  return [&rows = job.rows, shares_pages, heads = job.heads, width = job.width, scales, type, write = std::move(write)](
             const key_place& at, void* dst) {
    if (write) write(at, dst);
    divide_stored(dst, type, width, scales.at(number_of(rows, shares_pages, heads, at)));
  };
}

void fill_one_scale(const cache_contents& job, const operand_scales& scales, buffer& into) {
  prepare_whole(into, job.definition.seed);
  store(into.region->data(), into.desc.type, 0, scales.at(0));
}

// As a cache of one value for each key. Keys of which the cache holds nothing but poison have a scale nevertheless.
void fill_scales(cache_contents job, bool shares_pages, const operand_scales& scales, buffer& into) {
  if (!into.region) return;
  if (scales.form() == scale_form::tensor) return fill_one_scale(job, scales, into);
  const std::int64_t heads = job.heads;
  job.width = 1;
  job.names_places = true;
  job.write_k = [&](const key_place& at, void* dst) {
    store(dst, fp32, 0, scales.at(number_of(job.rows, shares_pages, heads, at)));
  };
  buffer* const only[] = {&into};
  fill_region(job, cache_tiles(job, into), only);
}

// The index cache, or its scales, as a cache of one head, whose axis stands where k has it.
buffer with_head(const buffer& of_keys) {
  buffer one_head = of_keys;
  tensor_desc& desc = one_head.desc;
  desc.shape.insert(desc.shape.begin() + 1, 1);
  desc.strides.insert(desc.strides.begin() + 1, desc.strides.front());
  return one_head;
}

cache_contents contents_of(const cache_job& job) {
  cache_contents contents{
      job.definition,
      job.agreed,
      job.rows,
      job.pool,
      job.agreed.hkv,
      job.agreed.d,
      job.values.names_places(),
      [&](std::int64_t b, std::int64_t head, std::int64_t block) { return job.chosen.keys_read(b, head, block); },
      {},
      {}};
  if (job.values.writes_nothing()) return contents;
  contents.write_k = [&](const key_place& at, void* dst) { job.values.write_k(at, dst); };
  contents.write_v = [&](const key_place& at, void* dst) { job.values.write_v(at, dst); };
  return contents;
}

}  // namespace

void fill_cache(const cache_job& job, buffer& k, buffer* of_values) {
  if (!k.region) return;
  cache_contents contents = contents_of(job);
  if (of_values == nullptr) {
    buffer* const only[] = {&k};
    return fill_region(contents, cache_tiles(contents, k), only);
  }
  buffer& v = *of_values;
  const operand_scales k_scales(job.definition, job.agreed, slot::k), v_scales(job.definition, job.agreed, slot::v);
  contents.write_k = divided(contents, job.shares_pages, k_scales, k.desc.type, std::move(contents.write_k));
  contents.write_v = divided(contents, job.shares_pages, v_scales, v.desc.type, std::move(contents.write_v));
  const cache_tiles tiles(contents, k);
  if (k.region == v.region) {
    buffer* const both[] = {&k, &v};
    fill_region(contents, tiles, both);
  } else {
    buffer* const first[] = {&k};
    buffer* const second[] = {&v};
    fill_region(contents, tiles, first);
    fill_region(contents, cache_tiles(contents, v), second);
  }
}

void fill_cache_scales(const cache_job& job, buffer& k_scale, buffer& v_scale) {
  for (const auto& [operand, into] : {std::pair{slot::k, &k_scale}, std::pair{slot::v, &v_scale}})
    fill_scales(contents_of(job), job.shares_pages, {job.definition, job.agreed, operand}, *into);
}

void fill_index_cache(const cache_contents& given, bool shares_pages, buffer& k_idx, buffer* k_idx_scale) {
  if (!k_idx.region) return;
  cache_contents contents = given;
  const operand_scales scales(given.definition, given.agreed, slot::k_idx);
  contents.write_k = divided(given, shares_pages, scales, k_idx.desc.type, given.write_k);
  buffer one_head = with_head(k_idx);
  buffer* const only[] = {&one_head};
  fill_region(contents, cache_tiles(contents, one_head), only);
  k_idx.contents = one_head.contents;
  k_idx.generated = one_head.generated;
  if (k_idx_scale == nullptr) return;
  if (scales.form() == scale_form::tensor) return fill_one_scale(given, scales, *k_idx_scale);
  buffer scale_of_head = with_head(*k_idx_scale);
  fill_scales(given, shares_pages, scales, scale_of_head);
  k_idx_scale->contents = scale_of_head.contents;
}

}  // namespace msabench
