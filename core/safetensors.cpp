// SPDX-License-Identifier: Apache-2.0
#include "core/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <new>
#include <set>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"

namespace msabench {
namespace {

using nlohmann::json;

struct element_type {
  std::string_view name;
  std::int64_t bytes;
};

constexpr element_type element_types[] = {
    {"F64", 8},     {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
    {"F8_E8M0", 1}, {"C64", 8}, {"I64", 8}, {"I32", 4},  {"I16", 2},     {"I8", 1},
    {"U64", 8},     {"U32", 4}, {"U16", 2}, {"U8", 1},   {"BOOL", 1},
};

struct named_format {
  dtype type;
  std::string_view name;
};

constexpr named_format formats[] = {{fp64, "F64"},  {fp32, "F32"},     {fp16, "F16"},
                                    {bf16, "BF16"}, {e4m3, "F8_E4M3"}, {i32, "I32"}};

// 0 for a name that the format does not have.
std::int64_t element_bytes(std::string_view name) {
  for (const element_type& e : element_types)
    if (e.name == name) return e.bytes;
  return 0;
}

// Bytes of a packed tensor; nothing on overflow.
std::optional<std::uint64_t> packed_bytes(std::span<const std::int64_t> shape, std::int64_t bytes_each) {
  std::int64_t total = bytes_each;
  for (const std::int64_t extent : shape)
    if (__builtin_mul_overflow(total, extent, &total)) return std::nullopt;
  return static_cast<std::uint64_t>(total);
}

// The format allows 100 MB; parsed, that would be gigabytes, and no case has so many tensors.
constexpr std::uint64_t max_header_bytes = std::uint64_t{16} << 20;
constexpr std::size_t length_bytes = 8;
constexpr std::string_view metadata_key = "__metadata__";
constexpr json_limits header_limits{max_header_bytes, 8};

std::uint64_t read_little_endian(std::span<const std::byte, length_bytes> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  return value;
}

// Bytes front to back, and how many there will be, if known.
struct byte_source {
  std::function<std::size_t(std::span<std::byte>)> read;
  std::optional<std::uint64_t> size_bytes;
};

constexpr std::size_t piece_bytes = std::size_t{16} << 20;

// Up to `wanted` bytes. Memory grows with what really arrives, so that a length that lies can't ask for it.
std::vector<std::byte> read_up_to(const byte_source& source, std::uint64_t wanted) {
  std::vector<std::byte> bytes;
  while (bytes.size() < wanted) {
    const std::size_t before = bytes.size();
    const auto piece =
        static_cast<std::size_t>(std::min<std::uint64_t>(wanted - before, std::max(before, piece_bytes)));
    bytes.resize(before + piece);
    const std::size_t got = source.read(std::span(bytes).subspan(before));
    bytes.resize(before + got);
    if (got < piece) break;
  }
  return bytes;
}

bool is_count(const json& value) {
  return value.is_number_unsigned() && value.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max();
}

}  // namespace

std::int64_t tensor_info::elements() const noexcept {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::string_view safetensors_name(msabench::dtype type) noexcept {
  for (const named_format& f : formats)
    if (f.type == type) return f.name;
  return {};
}

std::optional<dtype> dtype_from_safetensors(std::string_view text) noexcept {
  for (const named_format& f : formats)
    if (f.name == text) return f.type;
  return std::nullopt;
}

// What the reader has in hand while the file object is built.
struct safetensors_file::loader {
  safetensors_file& file;
  const byte_source& source;
  std::uint64_t max_bytes;

  void load() {
    const std::vector<std::byte> prefix = read_up_to(source, length_bytes);
    if (prefix.size() < length_bytes) file.refuse("is too short to be a safetensors file");
    const std::uint64_t header_bytes = read_little_endian(std::span<const std::byte, length_bytes>(prefix));
    if (header_bytes > max_header_bytes)
      file.refuse(
          fmt::format("claims a header of {} bytes, more than the {} accepted here", header_bytes, max_header_bytes));
    if (source.size_bytes &&
        header_bytes > *source.size_bytes - std::min<std::uint64_t>(*source.size_bytes, length_bytes))
      file.refuse(fmt::format("claims a header of {} bytes, more than the file has", header_bytes));
    const std::vector<std::byte> header = read_up_to(source, header_bytes);
    if (header.size() < header_bytes) file.refuse("ends within its header");
    const std::uint64_t data_bytes = read_header({reinterpret_cast<const char*>(header.data()), header.size()});
    if (data_bytes > max_bytes)
      file.refuse(fmt::format("lists {} bytes of data, more than the {} accepted here", data_bytes, max_bytes));
    // Known lengths are compared before anything is read: a wrong one costs no memory.
    if (source.size_bytes) check_length(*source.size_bytes - length_bytes - header_bytes, data_bytes);
    file.data_ = read_up_to(source, data_bytes);
    std::byte extra;
    const std::size_t more = source.read({&extra, 1});
    check_length(file.data_.size() + more, data_bytes);
  }

  void check_length(std::uint64_t present, std::uint64_t listed) const {
    if (present < listed)
      file.refuse(fmt::format("is truncated: its header lists {} bytes of data, {} are there", listed, present));
    if (present > listed) file.refuse(fmt::format("has trailing bytes after the {} that its header lists", listed));
  }

  // Fills tensors and metadata; returns how many bytes of data they need.
  std::uint64_t read_header(std::string_view text) {
    if (text.empty() || text.front() != '{') file.refuse("has a header that does not start with {");
    const json header = parse_json(file.field_, file.source_, text, header_limits);
    for (const auto& [key, value] : header.items()) {
      if (key == metadata_key) {
        read_metadata(value);
      } else {
        file.tensors_.push_back(read_tensor(key, value));
      }
    }
    std::sort(file.tensors_.begin(), file.tensors_.end(), [](const tensor_info& a, const tensor_info& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    std::uint64_t end = 0;
    for (std::size_t i = 0; i < file.tensors_.size(); ++i) {
      const tensor_info& info = file.tensors_[i];
      if (info.begin < end) file.refuse(fmt::format("tensor {} overlaps another one", info.name));
      if (info.begin > end)
        file.refuse(fmt::format("there is a hole of {} bytes before tensor {}", info.begin - end, info.name));
      end = info.end;
      file.by_name_.emplace(info.name, i);
    }
    return end;
  }

  void read_metadata(const json& value) {
    if (!value.is_object()) file.refuse(fmt::format("{} is not an object", metadata_key));
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) file.refuse(fmt::format("{} entry {} is not a string", metadata_key, key));
      file.metadata_.emplace(key, text.get<std::string>());
    }
  }

  tensor_info read_tensor(const std::string& name, const json& entry) const {
    const auto refuse = [&](std::string_view what) { file.refuse(fmt::format("tensor {} {}", name, what)); };
    if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") || !entry.contains("shape") ||
        !entry.contains("data_offsets"))
      refuse("does not have exactly dtype, shape and data_offsets");
    const json &type = entry["dtype"], &shape = entry["shape"], &offsets = entry["data_offsets"];
    if (!type.is_string()) refuse("has a dtype that is not a string");
    tensor_info info{.name = name, .dtype = type.get<std::string>(), .shape = {}};
    const std::int64_t bytes_each = element_bytes(info.dtype);
    if (bytes_each == 0) refuse(fmt::format("has the unknown dtype {}", info.dtype));
    if (!shape.is_array() || !std::all_of(shape.begin(), shape.end(), is_count))
      refuse("has a shape that is not a list of whole numbers from 0");
    info.shape = shape.get<std::vector<std::int64_t>>();
    if (!offsets.is_array() || offsets.size() != 2 || !is_count(offsets[0]) || !is_count(offsets[1]))
      refuse("has data_offsets that are not two whole numbers from 0");
    info.begin = offsets[0].get<std::uint64_t>();
    info.end = offsets[1].get<std::uint64_t>();
    if (info.begin > info.end) refuse("ends before it begins");
    const std::optional<std::uint64_t> needed = packed_bytes(info.shape, bytes_each);
    if (!needed) refuse("has a shape whose size overflows");
    if (*needed != info.end - info.begin)
      refuse(fmt::format("needs {} bytes by its shape and dtype and has {}", *needed, info.end - info.begin));
    return info;
  }
};

void safetensors_file::refuse(std::string_view problem) const {
  bad_input(field_, source_, problem, "give a complete safetensors file");
}

safetensors_file safetensors_file::open(std::string_view field, const std::filesystem::path& path,
                                        std::uint64_t max_bytes) {
  safetensors_file file(field, path.string());
  file_reader reader(field, path);
  const byte_source source{[&](std::span<std::byte> buffer) { return reader.read(buffer); }, reader.size_bytes()};
  try {
    loader{file, source, max_bytes}.load();
  } catch (const std::bad_alloc&) {
    bad_input(field, path.string(), "does not fit into memory", "give a smaller file");
  }
  return file;
}

safetensors_file safetensors_file::parse(std::string_view field, std::string_view source_name,
                                         std::span<const std::byte> bytes) {
  safetensors_file file(field, source_name);
  const std::uint64_t size = bytes.size();
  const byte_source source{[&bytes](std::span<std::byte> buffer) {
                             const std::size_t n = std::min(buffer.size(), bytes.size());
                             std::copy_n(bytes.begin(), n, buffer.begin());
                             bytes = bytes.subspan(n);
                             return n;
                           },
                           size};
  loader{file, source, size}.load();
  return file;
}

const tensor_info* safetensors_file::find(std::string_view name) const noexcept {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const tensor_info& safetensors_file::require(std::string_view name) const {
  const tensor_info* info = find(name);
  if (info == nullptr) refuse(fmt::format("has no tensor {}", name));
  return *info;
}

std::span<const std::byte> safetensors_file::bytes(const tensor_info& info) const {
  return std::span<const std::byte>(data_).subspan(info.begin, info.end - info.begin);
}

namespace {

template <class T>
std::vector<T> copy_as(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Calls visit(vector) with the elements of an integer tensor in their own type; false for other dtypes.
template <class Visit>
bool visit_integers(std::string_view type, std::span<const std::byte> bytes, Visit visit) {
  if (type == "I64") return visit(copy_as<std::int64_t>(bytes)), true;
  if (type == "I32") return visit(copy_as<std::int32_t>(bytes)), true;
  if (type == "I16") return visit(copy_as<std::int16_t>(bytes)), true;
  if (type == "I8") return visit(copy_as<std::int8_t>(bytes)), true;
  if (type == "U64") return visit(copy_as<std::uint64_t>(bytes)), true;
  if (type == "U32") return visit(copy_as<std::uint32_t>(bytes)), true;
  if (type == "U16") return visit(copy_as<std::uint16_t>(bytes)), true;
  if (type == "U8" || type == "BOOL") return visit(copy_as<std::uint8_t>(bytes)), true;
  return false;
}

}  // namespace

std::vector<double> safetensors_file::as_double(std::string_view name) const {
  const tensor_info& info = require(name);
  std::vector<double> values(static_cast<std::size_t>(info.elements()));
  if (const std::optional<msabench::dtype> type = dtype_from_safetensors(info.dtype)) {
    widen(bytes(info).data(), *type, 0, info.elements(), values.data());
    return values;
  }
  constexpr double exact = 0x1p53;
  const bool is_integer = visit_integers(info.dtype, bytes(info), [&](const auto& integers) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<double>(integers[i]);
      if (values[i] >= exact || values[i] <= -exact)
        refuse(fmt::format("tensor {} has the integer {} at {}, which double can't be trusted with", name, integers[i],
                           i));
    }
  });
  if (!is_integer) refuse(fmt::format("tensor {} has dtype {}, which can't be read as numbers", name, info.dtype));
  return values;
}

std::vector<std::int32_t> safetensors_file::as_int32(std::string_view name) const {
  const tensor_info& info = require(name);
  std::vector<std::int32_t> values(static_cast<std::size_t>(info.elements()));
  const bool is_integer = visit_integers(info.dtype, bytes(info), [&](const auto& integers) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!std::in_range<std::int32_t>(integers[i]))
        refuse(fmt::format("tensor {} has {} at {}, more than 32 bits", name, integers[i], i));
      values[i] = static_cast<std::int32_t>(integers[i]);
    }
  });
  if (!is_integer) refuse(fmt::format("tensor {} has dtype {} where integers are needed", name, info.dtype));
  return values;
}

void write_safetensors(std::string_view field, const std::filesystem::path& path,
                       const std::map<std::string, std::string>& metadata,
                       const std::vector<safetensors_entry>& tensors) {
  // Ordered, so that readers meet the tensors in the order of their data.
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(metadata_key)] = metadata;
  std::set<std::string_view> names{metadata_key};
  std::vector<std::string_view> pieces(2);
  std::uint64_t end = 0;
  for (const safetensors_entry& t : tensors) {
    const std::int64_t bytes_each = element_bytes(t.dtype);
    const bool plausible =
        bytes_each > 0 && std::all_of(t.shape.begin(), t.shape.end(), [](std::int64_t n) { return n >= 0; });
    if (!plausible || packed_bytes(t.shape, bytes_each) != t.bytes.size() || !names.insert(t.name).second)
      throw suite_error(fmt::format("tensor {} can't be written: its name, dtype, shape and bytes don't fit", t.name));
    header[t.name] = {{"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {end, end + t.bytes.size()}}};
    end += t.bytes.size();
    pieces.emplace_back(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size());
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const json::exception& e) {
    throw suite_error(fmt::format("a safetensors header can't be written: {}", e.what()));
  }
  // Spaces up to a multiple of 8, so that the data of 8-byte elements is aligned in the file.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length(length_bytes, '\0');
  for (std::size_t i = 0; i < length_bytes; ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  pieces[0] = length;
  pieces[1] = text;
  write_file_atomically(field, path, pieces);
}

}  // namespace msabench
