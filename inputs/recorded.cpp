// SPDX-License-Identifier: Apache-2.0
#include "inputs/recorded.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/hashes.h"
#include "inputs/batch.h"
#include "inputs/families/family.h"

namespace msabench {

namespace {

std::vector<slot> recorded_slots(op o) {
  switch (o) {
    case op::attend:
      return {slot::q, slot::k, slot::v, slot::ids};
    case op::dense:
      return {slot::q, slot::k, slot::v};
    case op::msa:
      return {slot::q, slot::k, slot::v, slot::q_idx, slot::k_idx};
    case op::score:
    case op::index:
      return {slot::q_idx, slot::k_idx};
    default:
      throw suite_error(fmt::format("operator {} has no recorded inputs", name(o)));
  }
}

std::vector<std::int64_t> packed_shape(slot where, const problem& p, const batch& rows) {
  switch (where) {
    case slot::q:
      return {rows.total_q(), p.hq, p.d};
    case slot::q_idx:
      return {rows.total_q(), p.hi, p.di};
    case slot::k_idx:
      return {rows.total_kv(), p.di};
    case slot::ids:
      return {rows.total_q(), p.hkv, p.topk};
    default:
      return {rows.total_kv(), p.hkv, p.d};
  }
}

// What a message says of one tensor of the file.
class recording_check {
 public:
  recording_check(const case_spec& c, const safetensors_file& file)
      : case_(c), problem_(make_problem(c)), rows_(c), file_(file) {}

  void check(slot where) const {
    const tensor_info* found = file_.find(name(where));
    if (found == nullptr) refuse(where, "is missing", "record it, or choose an operator that does without");
    const dtype type = where == slot::ids ? i32 : case_.type;
    if (found->dtype != safetensors_name(type))
      refuse(where, fmt::format("is {}, the case has {}", found->dtype, safetensors_name(type)),
             "name the type that it has");
    const auto shape = packed_shape(where, problem_, rows_);
    if (found->shape != shape)
      refuse(where,
             fmt::format("has shape [{}], the case has [{}]", fmt::join(found->shape, ","), fmt::join(shape, ",")),
             "name shape and lengths of what was recorded");
    const auto bytes = file_.bytes(*found);
    if (where == slot::ids)
      check_ids(bytes);
    else
      check_values(where, type, bytes, found->elements());
  }

 private:
  [[noreturn]] void refuse(slot where, const std::string& what, std::string_view remedy) const {
    bad_input("--recorded", file_.source(), fmt::format("tensor {} {}", name(where), what), remedy);
  }

  void check_values(slot where, dtype type, std::span<const std::byte> bytes, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i)
      if (!std::isfinite(load(bytes.data(), type, i)))
        refuse(where, fmt::format("holds what is not finite, at element {}", i), "record finite values");
  }

  void check_ids(std::span<const std::byte> bytes) const {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(problem_.topk));
    for (std::int64_t row = 0; row < rows_.total_q(); ++row)
      for (std::int64_t head = 0; head < problem_.hkv; ++head) {
        const auto first = static_cast<std::size_t>((row * problem_.hkv + head) * problem_.topk);
        std::memcpy(ids.data(), bytes.data() + first * 4, ids.size() * 4);
        if (!canonical(ids, rows_.rows()[static_cast<std::size_t>(row)].visible_blocks(problem_.block)))
          refuse(slot::ids, fmt::format("of row {}, head {} is not canonical", row, head),
                 "as many visible blocks as there are, at most topk, ascending, then -1");
      }
  }

  static bool canonical(const std::vector<std::int32_t>& ids, std::int64_t visible) {
    const auto count = std::min<std::int64_t>(visible, static_cast<std::int64_t>(ids.size()));
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(ids.size()); ++i) {
      const std::int32_t id = ids[static_cast<std::size_t>(i)];
      const std::int32_t before = i == 0 ? -1 : ids[static_cast<std::size_t>(i - 1)];
      if (i < count ? id <= before || id >= visible : id != -1) return false;
    }
    return true;
  }

  const case_spec& case_;
  problem problem_;
  batch rows_;
  const safetensors_file& file_;
};

struct read_recording {
  safetensors_file file;
  std::string sha256;
};

read_recording read(const std::filesystem::path& path) {
  constexpr std::uint64_t most_bytes = std::uint64_t{8} << 30;
  const std::string text = read_file("--recorded", path, most_bytes);
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(text.data()), text.size());
  return {safetensors_file::parse("--recorded", path.string(), bytes), sha256_hex(bytes)};
}

class recorded_values : public attend_family {
 public:
  explicit recorded_values(const attend_context& in)
      : problem_(in.agreed),
        rows_(in.rows),
        file_(open_recording(in.definition)),
        q_(file_, slot::q),
        k_(file_, slot::k),
        v_(file_, slot::v) {}

  void write_q(std::int64_t row, std::int64_t head, void* dst) const override {
    const std::int64_t values = std::int64_t{problem_.group()} * problem_.d;
    copy(q_, (row * problem_.hkv + head) * values, values, dst);
  }
  void write_k(const key_place& at, void* dst) const override { copy(k_, first(at), problem_.d, dst); }
  void write_v(const key_place& at, void* dst) const override { copy(v_, first(at), problem_.d, dst); }

 private:
  std::int64_t first(const key_place& at) const {
    return ((rows_.first_key(at.sequence) + at.key) * problem_.hkv + at.head) * problem_.d;
  }
  static void copy(const recorded_tensor& from, std::int64_t first, std::int64_t count, void* dst) {
    std::memcpy(dst, from.at(first), static_cast<std::size_t>(count * size_bytes(from.type())));
  }

  problem problem_;
  const batch& rows_;
  std::shared_ptr<const safetensors_file> file_;
  recorded_tensor q_, k_, v_;
};

class recorded_index : public index_family {
 public:
  explicit recorded_index(const index_context& in)
      : problem_(in.agreed),
        rows_(in.rows),
        file_(open_recording(in.definition)),
        q_(file_, slot::q_idx),
        k_(file_, slot::k_idx) {}

  void write_q(std::int64_t row, void* dst) const override {
    const std::int64_t values = std::int64_t{problem_.hi} * problem_.di;
    std::memcpy(dst, q_.at(row * values), static_cast<std::size_t>(values * size_bytes(q_.type())));
  }
  void write_k(const key_place& at, void* dst) const override {
    std::memcpy(dst, k_.at((rows_.first_key(at.sequence) + at.key) * problem_.di),
                static_cast<std::size_t>(problem_.di * size_bytes(k_.type())));
  }

 private:
  problem problem_;
  const batch& rows_;
  std::shared_ptr<const safetensors_file> file_;
  recorded_tensor q_, k_;
};

}  // namespace

void attach_recording(case_spec& c, const std::filesystem::path& folder) {
  if (c.family != "recorded") return;
  if (folder.empty())
    bad_input("--recorded", "", fmt::format("is needed for case {}", name(c)),
              fmt::format("the folder of {}.safetensors", c.variant));
  const std::filesystem::path path = folder / (c.variant + ".safetensors");
  const auto found = read(path);
  const recording_check against(c, found.file);
  for (const slot where : recorded_slots(c.operation)) against.check(where);
  c.recorded = {path.string(), found.sha256};
}

std::shared_ptr<const safetensors_file> open_recording(const case_spec& c) {
  if (c.recorded.path.empty()) throw suite_error(fmt::format("case {} has no recording attached", name(c)));
  auto found = read(c.recorded.path);
  if (found.sha256 != c.recorded.sha256)
    bad_input("--recorded", c.recorded.path, "has changed since it was checked", "leave it alone during a run");
  return std::make_shared<const safetensors_file>(std::move(found.file));
}

recorded_tensor::recorded_tensor(std::shared_ptr<const safetensors_file> file, slot where) : file_(std::move(file)) {
  const tensor_info& info = file_->require(name(where));
  bytes_ = file_->bytes(info);
  type_ = *dtype_from_safetensors(info.dtype);
}

const std::byte* recorded_tensor::at(std::int64_t element) const { return bytes_.data() + element * size_bytes(type_); }

std::vector<std::int32_t> recorded_ids(const recorded_tensor& ids, const problem& p, std::int64_t row,
                                       std::int64_t head) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(p.topk));
  std::memcpy(all.data(), ids.at((row * p.hkv + head) * p.topk), all.size() * 4);
  std::erase(all, -1);
  return all;
}

std::unique_ptr<attend_family> make_recorded(const attend_context& in) { return std::make_unique<recorded_values>(in); }

std::unique_ptr<index_family> make_recorded_index(const index_context& in) {
  return std::make_unique<recorded_index>(in);
}

}  // namespace msabench
