// SPDX-License-Identifier: Apache-2.0
// The data files of this folder, as they were when the library was built.
#pragma once

#include <string_view>
#include <vector>

namespace msabench {

std::string_view published_json();             // published.json
std::vector<std::string_view> device_jsons();  // devices/*.json

}  // namespace msabench
