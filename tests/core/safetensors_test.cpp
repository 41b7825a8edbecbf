// SPDX-License-Identifier: Apache-2.0
#include "core/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>

#include "core/files.h"
#include "tests/core/temporary_folder.h"
#include "tests/core/thrown.h"

namespace msabench {
namespace {

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::string length_prefix(std::uint64_t n) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(n >> (8 * i) & 0xff);
  return text;
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return length_prefix(header.size()) + header + std::string(data_bytes, '\0');
}

safetensors_file parse(const std::string& text) {
  return safetensors_file::parse("--file", "x.safetensors", std::as_bytes(std::span(text)));
}

std::string refusal(const std::string& text) {
  return thrown_line([&] { parse(text); });
}

std::string refusal(const std::string& header, std::size_t data_bytes) { return refusal(file_of(header, data_bytes)); }

TEST(safetensors, WrittenAndReadBack) {
  const temporary_folder folder;
  const std::vector<double> q{1.5, -2, INFINITY, 0x1p-1074};
  const std::vector<std::int32_t> ids{3, -1, 2147483647};
  const std::vector<std::uint16_t> k{0x3f80, 0xc000};
  const std::vector<std::uint8_t> none;
  write_safetensors("--out", folder / "t", {{"case", "{\"kind\": \"x\"}"}},
                    {{"q", "F64", {2, 2}, bytes_of(q)},
                     {"ids", "I32", {3, 1}, bytes_of(ids)},
                     {"empty", "U8", {0, 5}, bytes_of(none)},
                     {"scalar", "BF16", {}, bytes_of(k).first(2)},
                     {"k", "BF16", {2}, bytes_of(k)}});
  const safetensors_file file = safetensors_file::open("--file", folder / "t");
  EXPECT_EQ(file.metadata().at("case"), "{\"kind\": \"x\"}");
  EXPECT_EQ(file.as_double("q"), q);
  EXPECT_EQ(file.as_int32("ids"), ids);
  EXPECT_EQ(file.as_double("ids"), (std::vector<double>{3, -1, 2147483647}));
  EXPECT_EQ(file.as_double("k"), (std::vector<double>{1, -2}));
  EXPECT_EQ(file.as_double("scalar"), std::vector<double>{1});
  EXPECT_TRUE(file.as_double("empty").empty());
  ASSERT_NE(file.find("q"), nullptr);
  EXPECT_EQ(file.find("q")->shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(file.find("q")->elements(), 4);
  EXPECT_EQ(std::memcmp(file.bytes(*file.find("k")).data(), k.data(), 4), 0);
  EXPECT_EQ(file.find("none"), nullptr);
  EXPECT_EQ(thrown_line([&] { file.require("none"); }),
            "--file " + (folder / "t").string() + ": has no tensor none; give a complete safetensors file");
  EXPECT_EQ(file.tensors().size(), 5u);
  EXPECT_NE(thrown_line([&] { file.as_int32("q"); }).find("tensor q has dtype F64 where integers are needed"),
            std::string::npos);
  // Data of 8-byte elements is aligned in the file.
  const std::string raw = read_file("in", folder / "t", 1 << 20);
  EXPECT_EQ(static_cast<unsigned char>(raw[0]) % 8, 0);
}

TEST(safetensors, EveryStoredDtypeHasAName) {
  for (const dtype type : {bf16, fp16, fp32, fp64, e4m3, i32})
    EXPECT_EQ(dtype_from_safetensors(safetensors_name(type)), type);
  EXPECT_EQ(safetensors_name(tf32), "");
  EXPECT_FALSE(dtype_from_safetensors("I64"));
}

TEST(safetensors, IntegersOfOtherWidths) {
  const temporary_folder folder;
  const std::vector<std::int64_t> wide{5, -7}, too_wide{0, std::int64_t{1} << 31}, inexact{(std::int64_t{1} << 53) + 1};
  const std::vector<std::uint8_t> flags{0, 1};
  const std::vector<std::uint64_t> top{std::uint64_t{1} << 63};
  write_safetensors("o", folder / "t", {},
                    {{"wide", "I64", {2}, bytes_of(wide)},
                     {"too_wide", "I64", {2}, bytes_of(too_wide)},
                     {"inexact", "I64", {1}, bytes_of(inexact)},
                     {"flags", "BOOL", {2}, bytes_of(flags)},
                     {"top", "U64", {1}, bytes_of(top)},
                     {"complex", "C64", {1}, bytes_of(top)}});
  const safetensors_file file = safetensors_file::open(folder / "t");
  EXPECT_EQ(file.as_int32("wide"), (std::vector<std::int32_t>{5, -7}));
  EXPECT_EQ(file.as_double("too_wide"), (std::vector<double>{0, 2147483648.0}));
  EXPECT_EQ(file.as_int32("flags"), (std::vector<std::int32_t>{0, 1}));
  EXPECT_NE(thrown_line([&] { file.as_int32("too_wide"); }).find("has 2147483648 at 1"), std::string::npos);
  EXPECT_THROW(file.as_double("inexact"), usage_error);
  EXPECT_THROW(file.as_double("top"), usage_error);
  EXPECT_THROW(file.as_int32("top"), usage_error);
  EXPECT_THROW(file.as_double("complex"), usage_error);
}

TEST(safetensors, FilesOfOthersAreRead) {
  // Spaces after the header, tensors out of order, an empty file, an empty tensor between two others.
  EXPECT_EQ(refusal("{}  ", 0), "nothing thrown");
  EXPECT_EQ(
      refusal(
          R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
          R"("c":{"dtype":"F32","shape":[0],"data_offsets":[4,4]},"__metadata__":{"x":"y"}})",
          8),
      "nothing thrown");
}

TEST(safetensors, DamagedFramesAreRefused) {
  const std::string head = "--file x.safetensors: ", tail = "; give a complete safetensors file";
  EXPECT_EQ(refusal(""), head + "is too short to be a safetensors file" + tail);
  EXPECT_EQ(refusal("1234567"), head + "is too short to be a safetensors file" + tail);
  EXPECT_EQ(refusal(length_prefix(3) + "{}"), head + "claims a header of 3 bytes, more than the file has" + tail);
  EXPECT_EQ(refusal(length_prefix(~std::uint64_t{0}) + "{}"),
            head + "claims a header of 18446744073709551615 bytes, more than the 16777216 accepted here" + tail);
  EXPECT_EQ(refusal("", 0), head + "has a header that does not start with {" + tail);
  EXPECT_EQ(refusal(" {}", 0), head + "has a header that does not start with {" + tail);
  EXPECT_EQ(refusal("[]", 0), head + "has a header that does not start with {" + tail);
  EXPECT_EQ(refusal("{", 0).rfind(head + "is not valid JSON: ", 0), 0u);
  EXPECT_EQ(refusal("{}x", 0).rfind(head + "is not valid JSON: ", 0), 0u);
  EXPECT_EQ(refusal("{\"\xff\":1}", 0).rfind(head + "is not valid JSON: ", 0), 0u);
  EXPECT_EQ(refusal("{\"a\":" + std::string(1 << 20, '['), 0).rfind(head + "is nested deeper than 8 levels", 0), 0u);
  const std::string one = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_EQ(refusal(one, 8), "nothing thrown");
  EXPECT_EQ(refusal(one, 7), head + "is truncated: its header lists 8 bytes of data, 7 are there" + tail);
  EXPECT_EQ(refusal(one, 9), head + "has trailing bytes after the 8 that its header lists" + tail);
  EXPECT_EQ(refusal("{}", 1), head + "has trailing bytes after the 0 that its header lists" + tail);
}

TEST(safetensors, HeadersThatLieAreRefused) {
  const auto problem = [](const std::string& header, std::size_t data_bytes = 8) {
    const std::string head = "--file x.safetensors: ", tail = "; give a complete safetensors file";
    const std::string line = refusal(header, data_bytes);
    if (line.rfind(head, 0) != 0 || line.size() < head.size() + tail.size()) return line;
    return line.substr(head.size(), line.size() - head.size() - tail.size());
  };
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
  };
  const auto only = [&](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return "{\"a\":" + tensor(dtype, shape, offsets) + "}";
  };
  const auto two = [&](const std::string& first, const std::string& second) {
    return "{\"a\":" + tensor("\"U8\"", "[4]", first) + ",\"b\":" + tensor("\"U8\"", "[4]", second) + "}";
  };
  EXPECT_EQ(problem(two("[0,4]", "[4,8]")), "nothing thrown");
  EXPECT_EQ(problem(two("[0,4]", "[2,6]")), "tensor b overlaps another one");
  EXPECT_EQ(problem(two("[0,4]", "[0,4]")), "tensor b overlaps another one");
  EXPECT_EQ(problem(two("[0,4]", "[5,9]"), 9), "there is a hole of 1 bytes before tensor b");
  EXPECT_EQ(problem(only("\"U8\"", "[4]", "[4,8]")), "there is a hole of 4 bytes before tensor a");
  EXPECT_EQ(problem(only("\"U8\"", "[4]", "[8,4]")), "tensor a ends before it begins");
  EXPECT_EQ(problem(only("\"U8\"", "[9]", "[0,9]")), "is truncated: its header lists 9 bytes of data, 8 are there");
  EXPECT_EQ(problem(only("\"F32\"", "[4]", "[0,8]")), "tensor a needs 16 bytes by its shape and dtype and has 8");
  EXPECT_EQ(problem(only("\"F32\"", "[]", "[0,8]")), "tensor a needs 4 bytes by its shape and dtype and has 8");
  EXPECT_EQ(problem(only("\"U8\"", "[4294967296,4294967296]", "[0,0]"), 0),
            "tensor a has a shape whose size overflows");
  EXPECT_EQ(problem(only("\"F64\"", "[1152921504606846976]", "[0,0]"), 0), "tensor a has a shape whose size overflows");
  const std::string bad_shape = "tensor a has a shape that is not a list of whole numbers from 0";
  for (const char* shape : {"[-1]", "[1.0]", "[\"1\"]", "8", "{}", "[[8]]", "[18446744073709551615]",
                            "[9223372036854775808]", "[true]", "[1e1]"})
    EXPECT_EQ(problem(only("\"U8\"", shape, "[0,8]")), bad_shape) << shape;
  const std::string bad_offsets = "tensor a has data_offsets that are not two whole numbers from 0";
  for (const char* offsets : {"[0]", "[0,8,8]", "[-8,0]", "[0,8.0]", "8", "{}", "[0,18446744073709551615]", "[null,8]"})
    EXPECT_EQ(problem(only("\"U8\"", "[8]", offsets)), bad_offsets) << offsets;
  EXPECT_EQ(problem(only("\"F31\"", "[8]", "[0,8]")), "tensor a has the unknown dtype F31");
  EXPECT_EQ(problem(only("\"f32\"", "[2]", "[0,8]")), "tensor a has the unknown dtype f32");
  EXPECT_EQ(problem(only("\"\"", "[8]", "[0,8]")), "tensor a has the unknown dtype ");
  EXPECT_EQ(problem(only("7", "[8]", "[0,8]")), "tensor a has a dtype that is not a string");
  const std::string incomplete = "tensor a does not have exactly dtype, shape and data_offsets";
  for (const char* entry :
       {"{}", "1", "[]", "null", R"({"dtype":"U8","shape":[8]})", R"({"dtype":"U8","shape":[8],"offsets":[0,8]})",
        R"({"dtype":"U8","shape":[8],"data_offsets":[0,8],"x":1})"})
    EXPECT_EQ(problem(std::string("{\"a\":") + entry + "}"), incomplete) << entry;
  EXPECT_EQ(problem("{\"__metadata__\":1}", 0), "__metadata__ is not an object");
  EXPECT_EQ(problem("{\"__metadata__\":{\"k\":1}}", 0), "__metadata__ entry k is not a string");
  const std::string same = tensor("\"U8\"", "[4]", "[0,4]");
  EXPECT_EQ(refusal("{\"a\":" + same + ",\"a\":" + same + "}", 4),
            "--file x.safetensors: has the key \"a\" twice in one object; give plain JSON");
}

TEST(safetensors, EveryTruncationOfAFileIsRefused) {
  const std::string whole =
      file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"k":"v"}})", 8);
  ASSERT_EQ(refusal(whole), "nothing thrown");
  for (std::size_t n = 0; n < whole.size(); ++n) ASSERT_NE(refusal(whole.substr(0, n)), "nothing thrown") << n;
}

TEST(safetensors, DamagedBytesNeverDoMoreThanThrow) {
  const std::string whole = file_of(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"I32","shape":[1,1],"data_offsets":[8,12]}})",
      12);
  std::mt19937 random(3);
  int read = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = whole;
    for (auto n = 1 + random() % 3; n > 0; --n) damaged[random() % damaged.size()] = static_cast<char>(random());
    try {
      const safetensors_file file = parse(damaged);
      ++read;
      for (const tensor_info& info : file.tensors()) ASSERT_LE(info.end, 12u);
    } catch (const usage_error&) {
    }
  }
  // Damage to the data, and to letters of a name, is no damage of the format.
  EXPECT_GT(read, 0);
  EXPECT_LT(read, 20000);
}

TEST(safetensors, HugeAndMissingFilesCostNothing) {
  const temporary_folder folder;
  const std::string header = R"({"a":{"dtype":"U8","shape":[1099511627776],"data_offsets":[0,1099511627776]}})";
  write_file_atomically("o", folder / "sparse", file_of(header, 0));
  std::filesystem::resize_file(folder / "sparse", 8 + header.size() + (std::uint64_t{1} << 40));
  EXPECT_NE(
      thrown_line([&] { safetensors_file::open(folder / "sparse"); }).find("more than the 8589934592 accepted here"),
      std::string::npos);
  EXPECT_NE(thrown_line([&] { safetensors_file::open("--file", folder / "none"); }).find("can't be read: No such file"),
            std::string::npos);
  EXPECT_NE(thrown_line([&] { safetensors_file::open("--file", folder.path()); }).find("Is a directory"),
            std::string::npos);
  EXPECT_NE(thrown_line([&] { safetensors_file::open("--file", "/dev/null"); }).find("is too short"),
            std::string::npos);
  EXPECT_NE(thrown_line([&] { safetensors_file::open("--file", "/dev/zero"); }).find("does not start with {"),
            std::string::npos);
}

TEST(safetensors, ContradictoryEntriesAreTheSuitesFault) {
  const temporary_folder folder;
  const std::vector<std::uint8_t> four(4);
  const auto write = [&](std::vector<safetensors_entry> tensors) { write_safetensors("o", folder / "t", {}, tensors); };
  EXPECT_THROW(write({{"a", "F32", {2}, bytes_of(four)}}), suite_error);
  EXPECT_THROW(write({{"a", "F99", {4}, bytes_of(four)}}), suite_error);
  EXPECT_THROW(write({{"a", "U8", {-2, -2}, bytes_of(four)}}), suite_error);
  EXPECT_THROW(write({{"a", "U8", {4}, bytes_of(four)}, {"a", "U8", {4}, bytes_of(four)}}), suite_error);
  EXPECT_THROW(write({{"__metadata__", "U8", {4}, bytes_of(four)}}), suite_error);
  EXPECT_THROW(write({{"\xff", "U8", {4}, bytes_of(four)}}), suite_error);
  EXPECT_EQ(folder.entries(), 0u);
  EXPECT_THROW(write_safetensors("o", folder / "none/t", {}, {}), usage_error);
}

}  // namespace
}  // namespace msabench
