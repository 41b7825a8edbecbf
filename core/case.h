// SPDX-License-Identifier: Apache-2.0
// A case: one problem with one set of inputs, named so that a person can type it and a test filter can match it:
//
//   operator/shape/lengths/types.layout/family[.variant][/option]*/sSEED      attend/m3/q1.n1M/bf16.paged/needle/s0
//
// The registry of shapes, lengths, families and options is here and nowhere else. Defaults are never written, sizes are
// canonical, so parse_case(name(c)) == c and a name has one spelling.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/operator.h"
#include "core/problem.h"

namespace msabench {

struct shape_spec {
  std::int32_t hq = 0, hkv = 0, d = 0, hi = 0, di = 0, block = 0, topk = 0, local_blocks = 0, init_blocks = 0;
  bool operator==(const shape_spec&) const = default;
};

// One sequence of a batch: q_len query tokens of this call, the last of kv_len tokens (contract: q_b, N_b).
// kv_len < q_len makes padding rows (position below 0).
struct sequence {
  std::int64_t q_len = 0, kv_len = 0;
  bool operator==(const sequence&) const = default;
};

struct grid {
  std::int64_t t = 0, h = 0, w = 0;
  bool operator==(const grid&) const = default;
};

struct lengths_spec {
  enum class kind { uniform, ragged, grids } form = kind::uniform;
  std::int64_t q_len = 0, kv_len = 0, batch = 1;  // uniform
  std::string ragged_name;                        // ragged: its name,
  std::vector<sequence> listed;                   // or without one two sequences or more
  std::vector<grid> grids;                        // vit operators
  bool operator==(const lengths_spec&) const = default;
};

// Which scales stored e4m3 values have: of the problem, kv_scale and idx_scale.
enum class scale_form : std::int32_t { none = 0, tensor = 1, token = 2 };

// Options after the family, in the order in which a name lists them.
struct case_options {
  std::int32_t page_size = 0;   // page64; 0: the block size
  std::int64_t pool_pages = 0;  // pool128K: pages of the pool; 0: a few more than are used
  double softmax_scale = 0;     // scale0.05; 0: 1/sqrt(d). Of score and index: the index scale, 1/sqrt(di); of kl both
  std::int32_t splits = 0;      // split8; combine: partial results, 0 without it
  std::int32_t rope_dims = -1;  // rope32: rotated dims; -1: half of the smaller of d and di
  std::int32_t window = -1;     // window1: temporal patches of a segment, 0 = unlimited; -1: usual_vit_window
  double kl_coeff = 1;          // coeff0.5: what loss and gradients of kl are multiplied by
  bool stride = false;          // padded strides; an implementation may refuse them at run
  bool slack = false;           // bounds of the problem above the sizes of the tensors, rows past T in the tensors
  bool rep = false;             // 20 launches and a second plan at the same time
  bool warm = false;            // kl: warm-up stage
  // fp8: keys, values and operands of the index branch are e4m3 and have scales.
  scale_form fp8 = scale_form::none;  // fp8: one scale per head and token; fp8tensor: one per tensor
  // msa: operands of the index branch alone, keys and values have the type of q.
  scale_form fp8_index = scale_form::none;  // fp8idx: one scale per token; fp8idxtensor: one for all index keys
  bool lenient = false;                     // ids in form lenient
  bool short_rows = false;                  // ids in form short
  bool part16 = false;                      // partial results in the storage type, not in fp32
  bool grad16 = false;                      // gradients in the storage type, not in fp32
  bool bare = false;                        // vit3d: out and lse alone, nothing of what lies between
  bool operator==(const case_options&) const = default;
};

// Family recorded: the file of which the values are. Found where the case is about to run (inputs/recorded.h).
struct recorded_file {
  std::string path, sha256;
  bool operator==(const recorded_file&) const = default;
};

struct case_spec {
  op operation = op::attend;
  shape_spec shape;
  lengths_spec lengths;
  dtype type;  // storage type of q, k, v and out
  page_layout layout = page_layout::contiguous;
  std::string family, variant;  // variant empty: the family's default
  case_options options;
  std::uint64_t seed = 0;
  recorded_file recorded;
  bool operator==(const case_spec&) const = default;
};

// Which operators a family is accepted for: those that it is registered for, or besides, for `random`, every other one,
// whose inputs can be drawn without being judged (golden files).
enum class accepted_families { registered, random_for_all };

// Throws usage_error (field "case") for anything that is not a canonical name, saying which part and what it may be.
// Of vision operators, shape m3 is the vision tower: 16 heads, d 80.
case_spec parse_case(std::string_view text, accepted_families accepted = accepted_families::registered);

std::string name(const case_spec& c);
std::string name_without_seed(const case_spec& c);  // the generator's stream name

// The sequences of the batch. Of vision operators the segments, all of whose tokens are queries.
std::vector<sequence> sequences(const case_spec& c);

// rope3d, vit_attend and vit3d: rows see all keys of their sequence, not only those before them.
bool is_vision(op o);

// Operators whose keys lie in a layout that the case name gives; of training it is contig.
bool names_layout(op o);
bool trains(op o);

// Temporal patches of a segment unless option window says otherwise.
inline constexpr std::int32_t usual_vit_window = 4;

// Dims that qk_norm_rope rotates unless option rope says otherwise: half of the smaller of d and di, as M3 does.
std::int32_t usual_rope_dims(const shape_spec& s);

// The problem that the host asks of an implementation for this case.
problem make_problem(const case_spec& c);

// Everything that defines the case, expanded, as canonical JSON, and its hash: two suites that agree on it judge the
// same.
nlohmann::json definition(const case_spec& c);
std::string definition_sha256(const case_spec& c);

// Cost in (row, head, visible key) triples of one pass over all rows; of `select` the blocks count, of `combine` the
// partial results, and qk_norm_rope counts (row, head) alone.
std::int64_t cost_triples(const case_spec& c);

// msa: whether inputs plant the selection of the index branch, so that it is known; otherwise any visible block may be
// selected. Each row and index head of a sequence takes one of so many directions.
bool plants_selection(const case_spec& c);
std::int64_t planted_directions(std::int64_t di);

struct family_info {
  std::string_view name;
  std::string_view what;
  std::vector<op> operators;
  std::vector<std::string_view> variants;  // the first is the default; empty string: none needed; none: names of files
};
std::span<const family_info> families();

struct named_shape {
  std::string_view name;
  shape_spec shape;
};
std::span<const named_shape> named_shapes();

struct ragged_batch {
  std::string_view name;
  std::string_view what;
  std::vector<sequence> sequences;
};
std::span<const ragged_batch> ragged_batches();

// The lengths of a name for these sequences, at least one: uniform where all are alike and not empty, a named batch where
// there is one, else a list. A single sequence without query tokens or keys has none (suite_error).
lengths_spec lengths_of(std::span<const sequence> batch);

}  // namespace msabench
