// SPDX-License-Identifier: Apache-2.0
// What calls answer: tables, statuses, texts and declarations that no plugin should give.
#include <limits>

#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

/// query answers as naive does, and then one thing differently.
template <class Spoil>
msabench_status query_then(const msabench_problem* problem, msabench_capability* out, Spoil spoil) {
  const msabench_status status = exact().query(problem, out);
  if (status == MSABENCH_OK) spoil(*out);
  return status;
}

}  // namespace

/// Speaks another major version; nothing but the first four fields may be looked at.
const msabench_plugin* wrong_major(const msabench_host*) {
  static const msabench_plugin table = [] {
    msabench_plugin other{};
    other.struct_size = sizeof other;
    other.abi_major = MSABENCH_ABI_MAJOR + 1;
    return other;
  }();
  return &table;
}

/// Does not run anywhere.
const msabench_plugin* get_null(const msabench_host*) { return nullptr; }

const msabench_plugin* null_name(const msabench_host* host) {
  return changed(host, nullptr, [](msabench_plugin& table) { table.version = table.description = nullptr; });
}

const msabench_plugin* null_run(const msabench_host* host) {
  return changed(host, "null_run", [](msabench_plugin& table) { table.run = nullptr; });
}

/// Every problem is unsupported.
const msabench_plugin* refuse_all(const msabench_host* host) {
  return changed(host, "refuse_all", [](msabench_plugin& table) {
    table.query = [](const msabench_problem*, msabench_capability*) { return msabench_status{MSABENCH_UNSUPPORTED}; };
    table.plan = [](const msabench_problem*, msabench_plan**) { return msabench_status{MSABENCH_UNSUPPORTED}; };
    table.last_error = [] { return "op: nothing is supported; use another plugin"; };
  });
}

/// query accepts what plan then refuses.
const msabench_plugin* plan_refuses(const msabench_host* host) {
  return changed(host, "plan_refuses", [](msabench_plugin& table) {
    table.plan = [](const msabench_problem*, msabench_plan**) { return msabench_status{MSABENCH_UNSUPPORTED}; };
    table.last_error = [] { return "block 128: second thoughts; use another block"; };
  });
}

const msabench_plugin* nonsense_nan(const msabench_host* host) {
  return changed(host, "nonsense_nan", [](msabench_plugin& table) {
    table.query = [](const msabench_problem* problem, msabench_capability* out) {
      return query_then(problem, out, [](msabench_capability& answer) {
        answer.numerics.exp_rel_error = std::numeric_limits<float>::quiet_NaN();
      });
    };
  });
}

/// P in e4m3, coarser than bf16 and fp32 storage allow.
const msabench_plugin* nonsense_cap(const msabench_host* host) {
  return changed(host, "nonsense_cap", [](msabench_plugin& table) {
    table.query = [](const msabench_problem* problem, msabench_capability* out) {
      return query_then(problem, out, [](msabench_capability& answer) { answer.numerics.p_operand = {10, 8, 1}; });
    };
  });
}

/// Chains longer than any row.
const msabench_plugin* nonsense_chain(const msabench_host* host) {
  return changed(host, "nonsense_chain", [](msabench_plugin& table) {
    table.query = [](const msabench_problem* problem, msabench_capability* out) {
      return query_then(problem, out, [](msabench_capability& answer) {
        answer.numerics.chain_score = answer.numerics.chain_out = answer.numerics.chain_row_sum =
            std::numeric_limits<std::uint32_t>::max();
      });
    };
  });
}

/// Enumerators that do not exist.
const msabench_plugin* nonsense_profile(const msabench_host* host) {
  return changed(host, "nonsense_profile", [](msabench_plugin& table) {
    table.query = [](const msabench_problem* problem, msabench_capability* out) {
      return query_then(problem, out, [](msabench_capability& answer) {
        answer.profile.out_id_order = 99;
        answer.profile.lse = -5;
        answer.profile.rank_step = -1;
      });
    };
  });
}

/// run fails and says nothing.
const msabench_plugin* error_no_text(const msabench_host* host) {
  return changed(host, "error_no_text", [](msabench_plugin& table) {
    table.run = [](msabench_plan*, const msabench_args*, void*, void*) { return msabench_status{MSABENCH_INTERNAL}; };
    table.last_error = [] { return ""; };
  });
}

const msabench_plugin* error_null_text(const msabench_host* host) {
  return changed(host, "error_null_text", [](msabench_plugin& table) {
    table.run = [](msabench_plan*, const msabench_args*, void*, void*) { return msabench_status{MSABENCH_INTERNAL}; };
    table.last_error = []() -> const char* { return nullptr; };
  });
}

/// Finds at run that it does not support the problem after all.
const msabench_plugin* unsupported_in_run(const msabench_host* host) {
  return changed(host, "unsupported_in_run", [](msabench_plugin& table) {
    table.run = [](msabench_plan*, const msabench_args*, void*, void*) {
      return msabench_status{MSABENCH_UNSUPPORTED};
    };
    table.last_error = [] { return "topk 16: not on Mondays; wait"; };
  });
}

/// A status that the interface does not have.
const msabench_plugin* invalid_status(const msabench_host* host) {
  return changed(host, "invalid_status", [](msabench_plugin& table) {
    table.run = [](msabench_plan*, const msabench_args*, void*, void*) { return msabench_status{77}; };
  });
}

}  // namespace msabench::faults
