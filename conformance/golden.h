// SPDX-License-Identifier: Apache-2.0
// Compares the float64 reference with golden files: safetensors files in which an independent implementation left its
// inputs and its results in float64 (ids in int32). The metadata entry `case` is a JSON object with the `kind` and its
// parameters; tests/golden/README.md lists kinds, parameters and tensors.
//
// Every result of a file is compared with what the reference makes of its inputs. Stages are judged apart: block_ids is
// what select makes of the file's block_scores, and whatever is computed from selected blocks uses the file's block_ids.
// A tensor without elements, or one that the kind does not have, is listed as not compared; that never reads as passed.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace msabench {

inline constexpr std::string_view golden_kinds[] = {"attention", "text_layer", "vit3d"};

struct golden_tensor_result {
  std::string tensor;
  bool compared = false;
  bool passed = false;
  // ||got - want|| / ||want|| and max |got - want| / max |want|, over what both have finite; the absolute values where
  // `want` is all zero; NaN if an element is NaN. For integers: the share of elements that differ, twice.
  double rel_norm = 0, max_rel = 0;
  std::vector<std::int64_t> worst_index;  // the first NaN or misplaced infinity, else the largest difference
  double got = 0, want = 0;               // there: of the reference, of the file
  std::string note;                       // why it was not compared, or what failed
};

struct golden_result {
  std::string file, kind;
  nlohmann::json parameters;
  std::vector<golden_tensor_result> tensors;

  // Something was compared, and all that was compared passed.
  bool passed() const;
  // Nothing was compared: neither passed nor failed.
  bool not_verified() const;
};

// usage_error naming the file and the parameter or tensor for anything that is no golden file of a known kind: missing
// or out of range parameters, missing tensors, other types or shapes than the parameters say.
golden_result check_golden(const std::string& path);

// The rule by which a tensor passes, `want` being the file's: infinities agree in place and sign and are left out;
// ||got - want|| <= 1e-10 ||want||, or ||got|| <= 1e-12 where want is all zero; max |got - want| <= 1e-9 max |want|;
// and no element is off by a relative 1e-6 plus 1e-9, unless that is below the noise of float64. NaN fails.
golden_tensor_result compare_golden(const std::string& tensor, const std::vector<std::int64_t>& shape,
                                    std::span<const double> got, std::span<const double> want);
// Integers agree exactly.
golden_tensor_result compare_golden(const std::string& tensor, const std::vector<std::int64_t>& shape,
                                    std::span<const std::int32_t> got, std::span<const std::int32_t> want);

}  // namespace msabench
