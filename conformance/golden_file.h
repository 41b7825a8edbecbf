// SPDX-License-Identifier: Apache-2.0
// A golden file whose kind is known and whose parameters and tensors agree with each other.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
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

// Kind and parameters, without the tensors.
struct golden_case {
  std::string kind;
  nlohmann::json parameters;                               // without kind
  std::map<std::string, std::int64_t, std::less<>> sizes;  // integer parameters, and what follows from them
  std::span<const golden_tensor> tensors;                  // all that the kind has, inputs first

  std::int64_t size(std::string_view name) const { return sizes.find(name)->second; }
  double number(std::string_view name) const { return parameters[std::string(name)].get<double>(); }
  std::vector<std::int64_t> shape_of(const golden_tensor& tensor) const;
  // Multiplications that its results take, roughly.
  double work() const;
};

struct golden_file : golden_case {
  safetensors_file data;
};

// What the metadata entry `case` says. usage_error naming field, source and the parameter for everything that no
// problem can have, and for what would take more than some minutes.
golden_case read_golden_case(std::string_view field, std::string_view source, const nlohmann::json& description);
// The same for a whole file, whose tensors have the types and shapes that the parameters say.
golden_file read_golden_file(const std::string& path);

}  // namespace msabench
