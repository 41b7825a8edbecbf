// SPDX-License-Identifier: Apache-2.0
// A golden file whose kind is known and whose parameters and tensors agree with each other.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/safetensors.h"

namespace msabench {

struct golden_tensor {
  std::string_view name;
  bool integer;            // int32, else float64
  bool expected;           // a result, else an input
  std::string_view shape;  // names of sizes
};

struct golden_file {
  safetensors_file data;
  std::string kind;
  nlohmann::json parameters;                               // without kind
  std::map<std::string, std::int64_t, std::less<>> sizes;  // integer parameters, and what follows from them
  std::span<const golden_tensor> tensors;                  // all that the kind has, inputs first

  std::int64_t size(std::string_view name) const { return sizes.find(name)->second; }
};

// usage_error naming the file and the field for everything else.
golden_file read_golden_file(const std::string& path);

}  // namespace msabench
