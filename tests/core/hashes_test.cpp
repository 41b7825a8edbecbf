// SPDX-License-Identifier: Apache-2.0
#include "core/hashes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "tests/core/temporary_folder.h"

namespace msabench {
namespace {

TEST(hashes, Sha256OfTheStandard) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(hashes, PiecesAndFilesHashAsTheWhole) {
  std::string text;
  for (std::int64_t i = 0; i < 300000; ++i) text += static_cast<char>(i * i >> 3);
  sha256 hash;
  for (std::size_t at = 0; at < text.size(); at += 999) hash.update(std::string_view(text).substr(at, 999));
  EXPECT_EQ(hash.hex(), sha256_hex(text));
  const temporary_folder folder;
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, text.size()}) {
    write_file_atomically("out", folder / "f", std::string_view(text).substr(0, size));
    EXPECT_EQ(sha256_file("in", folder / "f"), sha256_hex(std::string_view(text).substr(0, size)));
  }
  EXPECT_THROW(sha256_file("in", folder / "missing"), usage_error);
  EXPECT_THROW(sha256_file("in", folder.path()), usage_error);
}

TEST(hashes, Fnv1aOfItsAuthors) {
  EXPECT_EQ(fnv1a64(""), 0xcbf29ce484222325u);
  EXPECT_EQ(fnv1a64("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(fnv1a64("foobar"), 0x85944171f73967e8u);
}

TEST(hashes, JsonHashIgnoresOrderAndSpaceOnly) {
  const auto a = nlohmann::json::parse(R"({"b": [1, 2], "a": {"y": 0.5, "x": "t"}})");
  const auto b = nlohmann::json::parse(R"({"a":{"x":"t","y":0.5},"b":[1,2]})");
  EXPECT_EQ(hash_json(a), hash_json(b));
  EXPECT_EQ(hash_json(a), sha256_hex(R"({"a":{"x":"t","y":0.5},"b":[1,2]})"));
  EXPECT_NE(hash_json(a), hash_json(nlohmann::json::parse(R"({"a":{"x":"t","y":0.5},"b":[2,1]})")));
  EXPECT_THROW(hash_json({{"x", std::numeric_limits<double>::infinity()}}), suite_error);
  EXPECT_THROW(hash_json({{"x", "\xff"}}), suite_error);
}

}  // namespace
}  // namespace msabench
