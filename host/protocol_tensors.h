// SPDX-License-Identifier: Apache-2.0
// Tensors and the regions that they lie in, as messages carry them: shared by `execute` and `time`. Private to host/.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json_fields.h"
#include "host/plugin_session.h"
#include "host/unique_fd.h"
#include "inputs/input_set.h"

namespace msabench::protocol {

const nlohmann::json& list_of(const json_fields& fields, std::string_view key);
slot read_slot(const json_fields& fields);

// Regions in order of first use; K and V may share one.
class region_list {
 public:
  // What is told of a region beside its size.
  struct details {
    bool contents = false;   // which ranges hold values, and which poison
    bool generated = false;  // which of them hold what the generator gives
    bool steady = false;     // that all launches see the same there
  };
  // -1: the tensor is empty and has no region.
  int index_of(const buffer& b, const details& told);

  std::vector<int> fds;
  nlohmann::json list = nlohmann::json::array();

 private:
  std::map<const shared_region*, int> numbers_;
};

nlohmann::json encode_tensor(const buffer& b, int plan, int region);

using byte_ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

struct mapped_region {
  std::unique_ptr<shared_region> memory;
  byte_ranges unmapped;          // bytes from its start that nobody may touch
  byte_ranges filled, poisoned;  // where that was told
  generated_stream generated;
  bool steady = false;
};
// What of the filled ranges is not generated.
byte_ranges uploaded(const byte_ranges& filled, const generated_stream& generated);

mapped_region map_region(const nlohmann::json& element, unique_fd& fd);
void take_access(const mapped_region& r);

// With its address in this process; `plan` and `region` as they were written.
struct decoded_tensor {
  bound_tensor tensor;
  int plan = 0, region = -1;
};
decoded_tensor decode_tensor(const nlohmann::json& element, const std::vector<mapped_region>& regions);

}  // namespace msabench::protocol
