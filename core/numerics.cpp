// SPDX-License-Identifier: Apache-2.0
#include "core/numerics.h"

#include "core/json.h"
#include "core/json_fields.h"

namespace msabench {

void to_json(nlohmann::json& out, const numerics& n) {
  out = {{"operand", dtype_to_json(n.operand)},
         {"v_operand", dtype_to_json(n.v_operand)},
         {"score_acc", dtype_to_json(n.score_acc)},
         {"score_store", dtype_to_json(n.score_store)},
         {"p_operand", dtype_to_json(n.p_operand)},
         {"pv_acc", dtype_to_json(n.pv_acc)},
         {"partial_store", dtype_to_json(n.partial_store)},
         {"out_store", dtype_to_json(n.out_store)},
         {"ds_operand", dtype_to_json(n.ds_operand)},
         {"rounded_operands", n.rounded_operands},
         {"lse_from_rounded_p", n.lse_from_rounded_p},
         {"truncated", n.truncated},
         {"chain_score", n.chain_score},
         {"chain_out", n.chain_out},
         {"chain_row_sum", n.chain_row_sum},
         {"chain_dq", n.chain_dq},
         {"chain_dkv", n.chain_dkv}};
  put_number(out, "exp_rel_error", n.exp_rel_error);
  put_number(out, "log_abs_error", n.log_abs_error);
}

void from_json(const nlohmann::json& in, numerics& n) {
  const json_fields fields("numerics", in);
  numerics read;
  fields.read("operand", read.operand);
  fields.read("v_operand", read.v_operand);
  fields.read("score_acc", read.score_acc);
  fields.read("score_store", read.score_store);
  fields.read("p_operand", read.p_operand);
  fields.read("pv_acc", read.pv_acc);
  fields.read("partial_store", read.partial_store);
  fields.read("out_store", read.out_store);
  fields.read("ds_operand", read.ds_operand);
  fields.read("rounded_operands", read.rounded_operands);
  fields.read("lse_from_rounded_p", read.lse_from_rounded_p);
  fields.read("truncated", read.truncated);
  fields.read("chain_score", read.chain_score);
  fields.read("chain_out", read.chain_out);
  fields.read("chain_row_sum", read.chain_row_sum);
  fields.read("chain_dq", read.chain_dq);
  fields.read("chain_dkv", read.chain_dkv);
  fields.read("exp_rel_error", read.exp_rel_error);
  fields.read("log_abs_error", read.log_abs_error);
  n = read;
}

}  // namespace msabench
