// SPDX-License-Identifier: Apache-2.0
// Reader and writer of safetensors files: 8 bytes little-endian header length, a JSON header, packed row-major data.
//
// The reader trusts nothing: a file that is not exactly a header and the tensors it lists, without holes, overlaps or
// trailing bytes, is a usage_error that names the file and what is wrong. The data are read into memory, not mapped: a
// file that shrinks while in use can't raise a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace msabench {

struct tensor_info {
  std::string name;
  std::string dtype;  // as in the file: F64, F32, BF16, F16, F8_E4M3, I32, I64, U8, BOOL, ...
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes, from the start of the data

  std::int64_t elements() const noexcept;
};

// The format's name of a stored dtype, and back; empty or nothing where the other side has none.
std::string_view safetensors_name(dtype type) noexcept;
std::optional<dtype> dtype_from_safetensors(std::string_view text) noexcept;

class safetensors_file {
 public:
  // `field` names the file's role in messages (a flag, "FILE"). Data longer than max_bytes are refused.
  static safetensors_file open(std::string_view field, const std::filesystem::path& path,
                               std::uint64_t max_bytes = std::uint64_t{8} << 30);
  static safetensors_file open(const std::filesystem::path& path) { return open("file", path); }
  // From the bytes of a whole file; `source` stands for the path in messages.
  static safetensors_file parse(std::string_view field, std::string_view source, std::span<const std::byte> bytes);

  const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }
  // In order of their place in the file.
  const std::vector<tensor_info>& tensors() const noexcept { return tensors_; }
  // Null if there is none. Valid as long as the file object.
  const tensor_info* find(std::string_view name) const noexcept;
  // As find, but a missing tensor is a usage_error naming the file.
  const tensor_info& require(std::string_view name) const;
  std::span<const std::byte> bytes(const tensor_info& info) const;

  // All elements. as_double takes F64, F32, BF16, F16, F8_E4M3, I32 and the other integers and BOOL (I64, U64: only
  // values that double holds exactly); as_int32 takes integers whose values fit. Otherwise usage_error naming file and
  // tensor.
  std::vector<double> as_double(std::string_view name) const;
  std::vector<std::int32_t> as_int32(std::string_view name) const;

  const std::string& source() const noexcept { return source_; }

 private:
  struct loader;
  safetensors_file(std::string_view field, std::string_view source) : field_(field), source_(source) {}
  [[noreturn]] void refuse(std::string_view problem) const;

  std::string field_, source_;
  std::map<std::string, std::string> metadata_;
  std::vector<tensor_info> tensors_;  // by begin, then end
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::vector<std::byte> data_;
};

// One tensor to write. `bytes` is packed row-major and not owned.
struct safetensors_entry {
  std::string name;
  std::string dtype;  // a name of the format
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

// Writes the tensors in the given order through write_file_atomically. suite_error if an entry contradicts itself
// (bytes against shape and dtype, a name twice); usage_error if the file can't be written.
void write_safetensors(std::string_view field, const std::filesystem::path& path,
                       const std::map<std::string, std::string>& metadata,
                       const std::vector<safetensors_entry>& tensors);

}  // namespace msabench
