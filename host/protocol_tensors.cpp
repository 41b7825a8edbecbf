// SPDX-License-Identifier: Apache-2.0
#include "host/protocol_tensors.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>

#include "core/error.h"

namespace msabench::protocol {
namespace {

using nlohmann::json;

constexpr std::array<enum_word<direction>, 2> directions = {{{direction::in, "in"}, {direction::out, "out"}}};

constexpr std::uint64_t group_elements = 4;  // that a counter of the generator gives
constexpr int most_exponent = 100;

json ranges_json(const std::vector<extent>& contents, extent::kind which) {
  json ranges = json::array();
  for (const extent& e : contents)
    if (e.holds == which) ranges.push_back({e.begin, e.end});
  return ranges;
}

byte_ranges read_ranges(const json_fields& fields, std::string_view key, std::uint64_t bytes) {
  byte_ranges read;
  if (!fields.has(key)) return read;
  for (const json& range : list_of(fields, key)) {
    if (!range.is_array() || range.size() != 2 || !range[0].is_number_unsigned() || !range[1].is_number_unsigned())
      fields.refuse(key, range, "is no range [begin, end]");
    const auto begin = range[0].get<std::uint64_t>(), end = range[1].get<std::uint64_t>();
    if (begin > end || end > bytes) fields.refuse(key, range, "is outside its region");
    read.emplace_back(begin, end);
  }
  return read;
}

json generated_json(const generated_stream& g) {
  json runs = json::array();
  for (const generated_run& r : g.runs) runs.push_back({r.begin, r.first, r.count});
  return {{"slot", std::string(name(g.where))}, {"dtype", dtype_to_json(g.type)}, {"key", std::to_string(g.key)},
          {"seed", std::to_string(g.seed)},     {"exponent", g.exponent},         {"runs", std::move(runs)}};
}

generated_stream read_generated(const json& in, const byte_ranges& filled) {
  const json_fields fields("generated", in);
  generated_stream g;
  g.where = read_slot(fields);
  const json& type = fields.require("dtype");
  fields.read("dtype", g.type);
  if (!is_stored(g.type) || g.type == i32 || size_bytes(g.type) > 4)
    fields.refuse("dtype", type, "is not made by the generator");
  fields.read_uint64_string("key", g.key);
  fields.read_uint64_string("seed", g.seed);
  fields.read("exponent", g.exponent);
  if (g.exponent < -most_exponent || g.exponent > most_exponent)
    fields.refuse("exponent", g.exponent, "scales beyond every format");
  const auto size = static_cast<std::uint64_t>(size_bytes(g.type));
  auto range = filled.begin();
  std::uint64_t last = 0;
  for (const json& run : list_of(fields, "runs")) {
    if (!run.is_array() || run.size() != 3 ||
        !std::ranges::all_of(run, [](const json& n) { return n.is_number_unsigned(); }))
      fields.refuse("runs", run, "is no run [begin, first, count]");
    const generated_run r{run[0].get<std::uint64_t>(), run[1].get<std::uint64_t>(), run[2].get<std::uint64_t>()};
    if (r.first % group_elements != 0 || r.count % group_elements != 0 || r.begin % (group_elements * size) != 0)
      fields.refuse("runs", run, "is not made of whole counters");
    while (range != filled.end() && range->second <= r.begin) ++range;
    if (range == filled.end() || r.begin < std::max(range->first, last) || r.count > (range->second - r.begin) / size)
      fields.refuse("runs", run, "does not ascend, or leaves what is filled");
    last = g.end_of(r);
    g.runs.push_back(r);
  }
  return g;
}

}  // namespace

byte_ranges uploaded(const byte_ranges& filled, const generated_stream& generated) {
  byte_ranges rest;
  auto next = generated.runs.begin();
  for (auto [begin, end] : filled) {
    for (; next != generated.runs.end() && next->begin >= begin && next->begin < end; ++next) {
      if (begin < next->begin) rest.emplace_back(begin, next->begin);
      begin = generated.end_of(*next);
    }
    if (begin < end) rest.emplace_back(begin, end);
  }
  return rest;
}

const json& list_of(const json_fields& fields, std::string_view key) {
  const json& list = fields.require(key);
  if (!list.is_array()) fields.refuse(key, list, "is no list");
  return list;
}

slot read_slot(const json_fields& fields) {
  std::string text;
  fields.read("slot", text);
  const auto found = slot_from_name(text);
  if (!found) fields.refuse("slot", text, "is no slot");
  return *found;
}

int region_list::index_of(const buffer& b, const details& told) {
  if (!b.region) return -1;
  const auto [at, is_new] = numbers_.try_emplace(b.region.get(), static_cast<int>(fds.size()));
  // Of K and V in one region the generated runs of the first are told, those of the second uploaded.
  if (!is_new) return at->second;
  fds.push_back(b.region->fd());
  json one = {{"bytes", b.region->bytes()},
              {"guard_bytes", b.region->guard_bytes()},
              {"unmapped", ranges_json(b.contents, extent::kind::unmapped)}};
  if (told.contents) {
    // An output is poison all over, and counts as a whole.
    one["filled"] = b.contents.empty() ? json::array({json::array({std::uint64_t{0}, b.region->bytes()})})
                                       : ranges_json(b.contents, extent::kind::filled);
    one["poisoned"] = ranges_json(b.contents, extent::kind::poisoned);
    if (told.generated && !b.generated.runs.empty()) one["generated"] = generated_json(b.generated);
  }
  if (told.steady) one["steady"] = true;
  list.push_back(std::move(one));
  return at->second;
}

json encode_tensor(const buffer& b, int plan, int region) {
  return {{"slot", std::string(name(b.where))},
          {"direction", word_or_number(b.dir, directions)},
          {"dtype", dtype_to_json(b.desc.type)},
          {"shape", b.desc.shape},
          {"strides", b.desc.strides},
          {"region", region},
          {"offset", b.offset},
          {"plan", plan}};
}

void take_access(const mapped_region& r) {
  for (const auto& [begin, end] : r.unmapped) ::mprotect(r.memory->data() + begin, end - begin, PROT_NONE);
}

mapped_region map_region(const json& element, unique_fd& fd) {
  const json_fields fields("region", element);
  std::uint64_t bytes = 0, guard_bytes = 0;
  fields.require("bytes");
  fields.read("bytes", bytes);
  fields.read("guard_bytes", guard_bytes);
  mapped_region r{
      std::make_unique<shared_region>(shared_region::attach(fd.release(), bytes, guard_bytes)), {}, {}, {}, {}, false};
  r.unmapped = read_ranges(fields, "unmapped", r.memory->bytes());
  r.filled = read_ranges(fields, "filled", r.memory->bytes());
  r.poisoned = read_ranges(fields, "poisoned", r.memory->bytes());
  if (const json* generated = fields.find("generated")) r.generated = read_generated(*generated, r.filled);
  fields.read("steady", r.steady);
  take_access(r);
  return r;
}

decoded_tensor decode_tensor(const json& element, const std::vector<mapped_region>& regions) {
  const json_fields fields("tensor", element);
  decoded_tensor read;
  bound_tensor& t = read.tensor;
  t.where = read_slot(fields);
  fields.require("direction");
  fields.read_word("direction", t.dir, directions);
  const json& type = fields.require("dtype");
  const json& shape = fields.require("shape");
  const json& strides = fields.require("strides");
  fields.read("dtype", t.desc.type);
  fields.read("shape", t.desc.shape);
  fields.read("strides", t.desc.strides);
  int& region = read.region;
  std::uint64_t offset = 0;
  fields.read("region", region);
  fields.read("offset", offset);
  fields.read("plan", read.plan);
  if (!is_stored(t.desc.type)) fields.refuse("dtype", type, "can't lie in memory");
  if (t.desc.shape.size() != t.desc.strides.size()) fields.refuse("strides", strides, "has another rank");
  if (std::ranges::any_of(t.desc.shape, [](auto n) { return n < 0; }))
    fields.refuse("shape", shape, "has a negative size");
  if (std::ranges::any_of(t.desc.strides, [](auto n) { return n < 0; }))
    fields.refuse("strides", strides, "has a negative stride");
  const bool empty = std::ranges::find(t.desc.shape, 0) != t.desc.shape.end();
  if (region < 0) {
    if (!empty) fields.refuse("region", region, "is missing for a tensor that is not empty");
    return read;
  }
  if (static_cast<std::size_t>(region) >= regions.size()) fields.refuse("region", region, "does not exist");
  const shared_region& memory = *regions[static_cast<std::size_t>(region)].memory;
  // In double, so that no product of foreign sizes overflows.
  double end = static_cast<double>(offset) + static_cast<double>(size_bytes(t.desc.type));
  for (std::size_t i = 0; i < t.desc.shape.size(); ++i)
    end += static_cast<double>(t.desc.shape[i] - 1) * static_cast<double>(t.desc.strides[i]) *
           static_cast<double>(size_bytes(t.desc.type));
  if (offset > memory.bytes() || (!empty && end > static_cast<double>(memory.bytes())))
    fields.refuse("offset", offset, "lets the tensor end outside its region");
  t.data = memory.data() + offset;
  return read;
}

}  // namespace msabench::protocol
