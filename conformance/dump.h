// SPDX-License-Identifier: Apache-2.0
// The tensors of one judged case as files, for `repro --dump`: inputs.safetensors, outputs.safetensors (first launch),
// expected.safetensors and limits.safetensors (float64, NaN where nothing was checked). Tensors have the names of their
// slots, and are packed; poison stands where it stood.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "conformance/runner.h"
#include "core/case.h"

namespace msabench {

// Bytes of all four files together, headers aside.
std::uint64_t dump_bytes(const case_spec& c);

// usage_error if they are more than 2 GiB: a sparse cache costs its whole size in a file.
void require_dumpable(std::string_view field, const case_spec& c);

// Replaces the files of an earlier dump all together, or after an error none of them: usage_error. Files for which there
// is nothing (a crash leaves no outputs) are removed.
void write_dump(std::string_view field, const std::filesystem::path& folder, const judged_case& judged);

}  // namespace msabench
