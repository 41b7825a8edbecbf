// SPDX-License-Identifier: Apache-2.0
// Digests: SHA-256 for identity (definitions, plugins, outputs), FNV-1a for keys of generator streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace msabench {

// Incremental SHA-256. update() in any pieces, then hex() once: 64 lower-case digits.
class sha256 {
 public:
  sha256();
  ~sha256();
  sha256(sha256&&) noexcept;
  sha256& operator=(sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  std::string hex();

 private:
  struct context;
  std::unique_ptr<context> context_;
};

std::string sha256_hex(std::span<const std::byte> bytes);
std::string sha256_hex(std::string_view text);
// Of the file's content; usage_error naming `field` and the path if it can't be read.
std::string sha256_file(std::string_view field, const std::filesystem::path& path);

// SHA-256 of the canonical text: keys sorted by bytes, no whitespace, UTF-8. suite_error for text that is not UTF-8 and
// for numbers that are not finite, which have no JSON form.
std::string hash_json(const nlohmann::json& value);

constexpr std::uint64_t fnv1a64(std::string_view text) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace msabench
