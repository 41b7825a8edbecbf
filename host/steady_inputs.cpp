// SPDX-License-Identifier: Apache-2.0
#include "host/steady_inputs.h"

#include <algorithm>

namespace msabench {

bool is_steady(const input_set& set, const buffer& b, const run_spec& how) {
  return b.dir == direction::in && std::ranges::none_of(set.inputs, [&](const buffer& beside) {
           return beside.region == b.region &&
                  ((how.rehearse && std::ranges::find(length_slots, beside.where) != std::end(length_slots)) ||
                   (set.before_launch && std::ranges::find(set.changing, beside.where) != set.changing.end()));
         });
}

}  // namespace msabench
