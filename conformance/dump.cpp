// SPDX-License-Identifier: Apache-2.0
#include "conformance/dump.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/operator_table.h"
#include "core/safetensors.h"
#include "core/units.h"
#include "judge/answers.h"

namespace msabench {

namespace {

namespace fs = std::filesystem;

constexpr const char* file_names[] = {"inputs.safetensors", "outputs.safetensors", "expected.safetensors",
                                      "limits.safetensors"};

struct slot_bytes {
  slot where = slot::q;
  std::uint64_t bytes = 0;
};

// Of every tensor in the files; an output counts with its two sheets of doubles.
std::vector<slot_bytes> sizes_of(const case_spec& c) {
  const problem p = make_problem(c);
  std::vector<slot_bytes> all;
  for (const auto& rule : slots_of(p.operation)) {
    if (!present(rule, p)) continue;
    std::uint64_t elements = 1;
    for (const auto side : shape_of(rule, p, bounds_of(p))) elements *= static_cast<std::uint64_t>(side);
    const auto stored = static_cast<std::uint64_t>(size_bytes(type_of(rule, p)));
    all.push_back({rule.where, elements * (stored + (rule.dir == direction::out ? 2 * sizeof(double) : 0))});
  }
  return all;
}

// The entries of one file, and the copies that packing some of them took.
class tensor_file {
 public:
  void add(slot where, const tensor_view& tensor) {
    const auto type = safetensors_name(tensor.desc.type);
    const auto bytes = static_cast<std::size_t>(tensor.desc.elements() * size_bytes(tensor.desc.type));
    const auto* const first = static_cast<const std::byte*>(tensor.data);
    const bool is_packed = bytes == 0 || tensor.desc.strides == packed_strides(tensor.desc.shape);
    entries_.push_back({std::string(name(where)), std::string(type), tensor.desc.shape,
                        is_packed ? std::span(first, bytes) : std::span<const std::byte>(packed_copy(tensor, bytes))});
  }

  void add(slot where, const std::vector<std::int64_t>& shape, const std::vector<double>& values) {
    entries_.push_back(
        {std::string(name(where)), std::string(safetensors_name(fp64)), shape, std::as_bytes(std::span(values))});
  }

  bool empty() const { return entries_.empty(); }

  void write(std::string_view field, const fs::path& path, const case_spec& c) const {
    write_safetensors(
        field, path,
        {{"case", msabench::name(c)}, {"definition_sha256", definition_sha256(c)}, {"format", "msabench.dump/1"}},
        entries_);
  }

 private:
  const std::vector<std::byte>& packed_copy(const tensor_view& tensor, std::size_t bytes) {
    const auto size = static_cast<std::size_t>(size_bytes(tensor.desc.type));
    const auto& shape = tensor.desc.shape;
    std::vector<std::byte> copy(bytes);
    std::vector<std::int64_t> index(shape.size(), 0);
    for (std::size_t done = 0; done < bytes; done += size) {
      std::int64_t at = 0;
      for (std::size_t axis = 0; axis < index.size(); ++axis) at += index[axis] * tensor.desc.strides[axis];
      std::memcpy(copy.data() + done, static_cast<const std::byte*>(tensor.data) + static_cast<std::size_t>(at) * size,
                  size);
      for (std::size_t axis = shape.size(); axis-- > 0;) {
        if (++index[axis] < shape[axis]) break;
        index[axis] = 0;
      }
    }
    copies_.push_back(std::move(copy));
    return copies_.back();
  }

  std::vector<safetensors_entry> entries_;
  std::vector<std::vector<std::byte>> copies_;  // their data stays where it is when the list grows
};

// A folder beside the files, so that they move into place by renaming; gone with everything in it at the end.
class staging_folder {
 public:
  staging_folder(std::string_view field, const fs::path& folder) {
    std::string pattern = (folder / ".dump-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr)
      bad_input(field, folder.string(), fmt::format("no folder can be made in it: {}", std::strerror(errno)),
                "name a folder that can be written to");
    path_ = pattern;
  }
  staging_folder(const staging_folder&) = delete;
  ~staging_folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

std::uint64_t dump_bytes(const case_spec& c) {
  std::uint64_t total = 0;
  for (const slot_bytes& each : sizes_of(c)) total += each.bytes;
  return total;
}

void require_dumpable(std::string_view field, const case_spec& c) {
  constexpr std::uint64_t most = std::uint64_t{2} << 30;
  const std::uint64_t total = dump_bytes(c);
  if (total <= most) return;
  slot_bytes largest;
  for (const slot_bytes& each : sizes_of(c))
    if (each.bytes > largest.bytes) largest = each;
  bad_input(field, name(c),
            fmt::format("its files would take {}, {} of it tensor {}, and {} is the limit",
                        format_bytes(static_cast<double>(total)), format_bytes(static_cast<double>(largest.bytes)),
                        name(largest.where), format_bytes(static_cast<double>(most))),
            "take a case with a shorter context or a smaller pool");
}

void write_dump(std::string_view field, const fs::path& folder, const judged_case& judged) {
  tensor_file files[std::size(file_names)];
  for (const buffer& b : judged.inputs.inputs) files[0].add(b.where, b.view());
  std::optional<judge::answers> due;
  if (!judged.seen.launches.empty()) {
    const launch& first = judged.seen.launches.front();
    for (const auto& [where, tensor] : first.outputs)
      if (tensor) files[1].add(where, tensor);
    if (judged.expected != nullptr) {
      due.emplace(first, judged.delivers);
      judged.expected->answer(*due, first);
      for (const auto& [where, sheet] : due->sheets()) {
        if (sheet.shape.empty()) continue;
        files[2].add(where, sheet.shape, sheet.want);
        if (where != slot::ids) files[3].add(where, sheet.shape, sheet.limit);
      }
    }
  }
  const staging_folder staging(field, folder);
  for (std::size_t i = 0; i < std::size(files); ++i)
    if (!files[i].empty()) files[i].write(field, staging.path() / file_names[i], judged.definition);
  for (std::size_t i = 0; i < std::size(files); ++i) {
    std::error_code error;
    if (files[i].empty())
      fs::remove(folder / file_names[i], error);
    else
      fs::rename(staging.path() / file_names[i], folder / file_names[i], error);
    if (error)
      bad_input(field, (folder / file_names[i]).string(), fmt::format("can't be replaced: {}", error.message()),
                "name an empty folder");
  }
}

}  // namespace msabench
