// SPDX-License-Identifier: Apache-2.0
// Files of tensors: the tensors of a file that is taken lie inside it.
#include <span>

#include "core/safetensors.h"
#include "tests/fuzz/foreign_text.h"

using namespace msabench;
using namespace msabench::fuzz_test;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  taken([&] {
    const auto file = safetensors_file::parse("FILE", "text", std::as_bytes(std::span(data, size)));
    for (const auto& tensor : file.tensors()) {
      const auto bytes = file.bytes(tensor);
      require(bytes.size() <= size);
      require(file.find(tensor.name) == &tensor);
      taken([&] { require(static_cast<std::int64_t>(file.as_double(tensor.name).size()) == tensor.elements()); });
      taken([&] { require(static_cast<std::int64_t>(file.as_int32(tensor.name).size()) == tensor.elements()); });
    }
  });
  return 0;
}
