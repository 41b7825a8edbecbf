// SPDX-License-Identifier: Apache-2.0
// What an implementation accepts, emits and promises where public ones differ (docs/contract.md section 10). Mirrors
// msabench_profile; every field's 0 is the canonical choice of the contract.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace msabench {

enum class id_order : std::int32_t { ascending = 0, score = 1, local_last = 2, any = 3, none = 4 };
enum class id_layout : std::int32_t { thk = 0, htk = 1 };
enum class id_form : std::int32_t { exact = 0, short_rows = 1, lenient = 2 };
enum class score_unit : std::int32_t { scaled = 0, raw = 1 };
enum class score_fill : std::int32_t { value = 0, sentinel = 1, unwritten = 2 };
enum class nan_policy : std::int32_t { ignore = 0, propagate = 1 };
enum class lse_form : std::int32_t { natural = 0, base2 = 1, none = 2 };
enum class empty_form : std::int32_t { zero = 0, undefined = 1 };

struct profile {
  id_order in_id_order = id_order::ascending;
  id_layout in_id_layout = id_layout::thk;
  id_form in_id_form = id_form::exact;
  id_order out_id_order = id_order::ascending;
  id_layout out_id_layout = id_layout::thk;
  score_unit unit = score_unit::scaled;
  score_fill score_own = score_fill::value, score_tail = score_fill::value;
  nan_policy nan_score = nan_policy::ignore;
  lse_form lse = lse_form::natural;
  empty_form empty_row = empty_form::zero;
  float rank_step = 0;
  bool ties_low_id = false, repeatable = false, batch_invariant = false, split_invariant = false, graph_safe = false,
       hardened = false;
  bool round_after_norm = false, rotate_in_storage = false;

  bool operator==(const profile&) const = default;
};

void to_json(nlohmann::json& out, const profile& p);
void from_json(const nlohmann::json& in, profile& p);

}  // namespace msabench
