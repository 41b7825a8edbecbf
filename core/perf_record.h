// SPDX-License-Identifier: Apache-2.0
// What is kept of a run of `msabench perf`: raw samples, what they say, what was verified, and the machine's limits and
// load beside them. Reports render these and nothing else. Schema msabench.perf/1.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/back_to_back.h"
#include "core/check_result.h"
#include "core/record.h"
#include "core/samples.h"
#include "core/statistics.h"
#include "core/verdict.h"

namespace msabench {

// What a number of an item is worth.
enum class item_state {
  measured,     // timed, and its outputs judged right
  unverified,   // timed; nobody could say whether its outputs are right
  failed,       // wrong outputs, damage, a crash, a hang: there is no number
  busy,         // the machine was too busy to tell: there is no number
  unsupported,  // the implementation declares that it does not do this
  not_run,      // left out: the budget, or an interrupt
};
std::string_view name(item_state s);  // "not-run"

// Limits of the machine as measured between the samples.
struct perf_ceilings {
  std::map<std::string, double> flops;  // FLOP/s by the operands' format
  double bytes_per_s = 0;
  std::string source;
  // Raw, in the order of measurement; e4m3 apart, since it is another measurement than that of all other formats.
  std::vector<double> flops_samples, e4m3_samples, bytes_samples;

  bool known() const { return bytes_per_s > 0 && !flops.empty(); }
};

struct perf_work {
  double useful_flops = 0;
  double index_flops = 0;                // of the useful ones, those between operands of the index branch
  std::optional<double> executed_flops;  // where an implementation's tiles are known
  double compulsory_bytes = 0, algorithmic_bytes = 0;
};

// Rates and ratios of the median time.
struct perf_figures {
  double flops_per_s = 0, bytes_per_s = 0;  // useful, compulsory
  double roofline_s = 0;                    // shortest time that the measured limits allow
  std::string bound;                        // "flops" or "bytes": which limit that is
  std::optional<double> efficiency;         // roofline_s / time
  // Time of the fastest dense attention of the same point / time, and the most that it could be: the ratio of the two
  // roofline times.
  std::optional<double> gain_over_dense, gain_limit;
  std::string dense;                   // whose dense attention
  bool gain_verified = false;          // both outputs were judged right
  std::optional<double> share_of_msa;  // of a stage: its time / that of msa of the same implementation
  std::optional<double> against;       // time of the other implementation / time
  // The same two of launches back to back. Clocks that the power limit has lowered are part of what these compare.
  std::optional<double> back_to_back_gain, back_to_back_against;
  std::string gain_refused, against_refused;  // why the two times are not compared, where both are there
};

struct perf_item {
  std::string name, definition_sha256;  // of the case that was timed
  std::string operation;
  std::uint64_t seed = 0;
  int implementation = 0;  // index into perf_run::implementations
  item_state state = item_state::not_run;
  std::string reason;                   // one line; empty where measured
  samples timing;                       // raw, kept whatever the state
  sample_summary time_us;               // of them
  bool converged = false;               // the interval is as narrow as asked for
  std::vector<std::int64_t> low_clock;  // samples that began far below the median clock, by number
  back_to_back in_a_row;                // launches that nobody waited for in between; no part of time_us
  std::int64_t launches = 0;
  perf_work work;
  std::optional<perf_figures> figures;  // measured and unverified items
  // Verification of the timed outputs, after the loop.
  std::optional<verdict> decided;  // nothing: no outputs were judged
  fail_kind kind = fail_kind::none;
  std::vector<check_result> checks;
  std::int64_t rows_checked = 0, rows_total = 0;
  std::int64_t outputs_seen = 0, outputs_judged = 0, outputs_different = 0;
  std::vector<std::string> remarks;
  std::string captured_output;
};

// Items that took turns in one process.
struct perf_point {
  std::string phase;  // "decode", "prefill", "training", "vision"
  std::int64_t query_tokens = 0, context = 0, batch = 1;
  std::string selection;             // "random", "realistic", "shared64"
  std::optional<std::int64_t> topk;  // suite topk: of the shape at this point
  bool cold = false;                 // inputs came from memory; false: from a cache, at least in part
  double reuse_distance_bytes = 0;
  std::int64_t rounds_of_sets = 0;  // rounds until an input set is used again
  double estimated_s = 0, seconds = 0;
  bool budget_ended = false;
  bool conditions_known = false;
  double others = 0, steal = 0, load = 0, mhz = 0;  // over the loop; shares of all CPUs
  perf_ceilings ceilings;
  std::vector<perf_item> items;
};

// Of a whole sequence that not all chunks have times of: those that both it and a dense have, and sums over these alone.
struct perf_common_chunks {
  std::vector<std::int64_t> contexts;  // where they end
  double time_us = 0, dense_us = 0;
  std::optional<double> back_to_back_us, dense_back_to_back_us;  // both or none
  std::string dense;                                             // whose
};

// What a whole would take, by straight lines between the chunks that have a time, the first and the last among them. No sum,
// and never told as one.
struct perf_whole_estimate {
  std::vector<std::int64_t> contexts;  // where the chunks end that it goes by
  double time_us = 0;
  std::optional<double> back_to_back_us;  // by the same chunks
  // Of a chunk between two others, from the line between these two, as a share of its own time: the largest. Back to back where
  // that was measured.
  double deviation = 0;
  std::string dense;              // whose is the fastest at some of its chunks; empty: there is no estimate of it
  std::int64_t dense_chunks = 0;  // that the estimate of it goes by
  std::optional<double> dense_us, dense_back_to_back_us;
  std::optional<double> gain_over_dense;  // nothing where chunks of both were taken at different clocks
  std::optional<double> back_to_back_gain;
};

// A whole sequence, chunk after chunk, by one operator of one implementation. Sums are over all chunks or not there:
// nothing is made up for a chunk that was not measured.
struct perf_whole {
  std::int64_t context = 0, chunk = 0, batch = 1;
  std::string operation;
  int implementation = 0;
  std::int64_t chunks = 0, measured = 0;  // that the sequence has; that have a time
  std::optional<double> time_us, back_to_back_us;
  bool verified = false;                        // the outputs of all of them
  double useful_flops = 0;                      // of all chunks that have a time
  std::optional<double> gain_over_dense;        // time of the fastest dense / time, both over all chunks
  std::string dense;                            // whose
  std::optional<perf_common_chunks> common;     // of one that is partial, or beside a dense that is
  std::optional<perf_whole_estimate> estimate;  // likewise
  bool partial() const { return measured < chunks; }
};

// Scores and selection, apart and in one, at one context and top-k. Times in us; nothing: not measured.
struct perf_topk {
  std::string phase;
  std::int64_t context = 0, query_tokens = 0, topk = 0;
  int implementation = 0;
  std::optional<double> score_us, select_us, index_us;
  std::optional<double> split_over_fused;  // (score + select) / index
  bool verified = false;                   // outputs of all that were measured
};

struct perf_run {
  std::string suite_version, suite_commit;
  bool suite_dirty = false;
  std::vector<std::string> argv;
  std::string start_utc;
  std::string suite;
  std::uint64_t seed = 0;
  double budget_s = 0, estimated_s = 0;
  std::string cache;  // "cold" or "hot", as asked for
  int threads = 0;
  bool partial = false;
  nlohmann::json environment = nlohmann::json::object();
  std::vector<implementation_record> implementations;  // the one asked for, then the one it is compared with
  std::optional<std::uint64_t> last_level_cache_bytes;
  double busy_limit = 0, steal_limit = 0;
  perf_ceilings ceilings;  // of the whole run
  std::vector<perf_point> points;
  // Shortest context from which msa is no slower than dense, of each implementation that has both; crossover suite.
  struct crossover {
    int implementation = 0;
    std::optional<double> context;
    std::string note;
  };
  std::vector<crossover> crossovers;
  std::vector<perf_whole> wholes;  // suite prefill_whole
  std::vector<perf_topk> topk;     // suite topk
};

// Items in that state.
std::int64_t count(const perf_run& run, item_state s);

// 70 never; 1: an item failed; 4: the machine was too busy for an item; 2: interrupted, or an item is unverified; 3:
// nothing measured; 0 otherwise. The first that applies. Items that were left out for the budget count as nothing.
int exit_code_of(const perf_run& run);

nlohmann::json to_report_json(const perf_run& run);

}  // namespace msabench
