// SPDX-License-Identifier: Apache-2.0
#include "core/hashes.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "core/files.h"

namespace msabench {

struct sha256::context {
  EVP_MD_CTX* handle = EVP_MD_CTX_new();
  context() = default;
  context(const context&) = delete;
  context& operator=(const context&) = delete;
  ~context() { EVP_MD_CTX_free(handle); }
};

sha256::sha256() : context_(std::make_unique<context>()) {
  if (context_->handle == nullptr || EVP_DigestInit_ex(context_->handle, EVP_sha256(), nullptr) != 1)
    throw suite_error("libcrypto offers no SHA-256");
}
sha256::~sha256() = default;
sha256::sha256(sha256&&) noexcept = default;
sha256& sha256::operator=(sha256&&) noexcept = default;

void sha256::update(std::span<const std::byte> bytes) {
  if (EVP_DigestUpdate(context_->handle, bytes.data(), bytes.size()) != 1) throw suite_error("SHA-256 failed");
}

void sha256::update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }

std::string sha256::hex() {
  std::array<unsigned char, 32> digest{};
  if (EVP_DigestFinal_ex(context_->handle, digest.data(), nullptr) != 1) throw suite_error("SHA-256 failed");
  std::string text;
  for (const unsigned char byte : digest) fmt::format_to(std::back_inserter(text), "{:02x}", byte);
  return text;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

std::string sha256_hex(std::string_view text) { return sha256_hex(std::as_bytes(std::span(text.data(), text.size()))); }

std::string sha256_file(std::string_view field, const std::filesystem::path& path) {
  file_reader file(field, path);
  sha256 hash;
  std::vector<std::byte> buffer(std::size_t{1} << 20);
  for (;;) {
    const std::size_t n = file.read(buffer);
    hash.update(std::span<const std::byte>(buffer).first(n));
    if (n < buffer.size()) return hash.hex();
  }
}

namespace {

// dump() would write null for these, and two different definitions would share a hash.
void require_finite(const nlohmann::json& value) {
  if (value.is_number_float() && !std::isfinite(value.get<double>()))
    throw suite_error("a number that is not finite can't be hashed");
  if (value.is_structured())
    for (const nlohmann::json& part : value) require_finite(part);
}

}  // namespace

std::string hash_json(const nlohmann::json& value) {
  require_finite(value);
  try {
    return sha256_hex(value.dump());
  } catch (const nlohmann::json::exception& e) {
    throw suite_error(fmt::format("a value can't be hashed: {}", e.what()));
  }
}

}  // namespace msabench
