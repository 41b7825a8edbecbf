// SPDX-License-Identifier: Apache-2.0
// PTX as the interpreter runs it: instructions with their operands found, and what a kernel needs to be launched.
//
// A register is a row of 32 values of 64 bits in a warp, a predicate a mask of 32 bits.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace msabench::ptx {

/// Of PTX that can't be read, and of kernels that do what the hardware forbids. The text names the instruction.
struct ptx_error : std::runtime_error {
  using runtime_error::runtime_error;
};

inline constexpr int lanes = 32;

enum class type : std::uint8_t {
  none,
  pred,
  b8,
  b16,
  b32,
  b64,
  b128,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  f16,
  f16x2,
  bf16,
  bf16x2,
  f32,
  f64,
  e4m3x2,
  tf32
};

/// Bits of a type.
int bits_of(type t);
/// none: no word for a type.
type type_named(std::string_view word);

enum class operand_kind : std::uint8_t {
  none,       // "_"
  reg,        // index: of a register
  predicate,  // index: of a predicate
  constant,   // index: into the kernel's constants
  special,    // index: of special_register
  local,      // offset in the thread's local memory, which has another address in each lane
};

struct operand {
  operand_kind kind = operand_kind::none;
  bool negated = false;  ///< of a predicate
  std::uint32_t index = 0;
  std::int64_t offset = 0;  ///< added to an address
};

enum class special_register : std::uint32_t {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  warpid,
  nwarpid,
  smid,
  nsmid,
  clock,
  clock64,
  globaltimer,
  lanemask_lt,
  lanemask_le,
  lanemask_gt,
  lanemask_ge,
  lanemask_eq,
  cluster_ctaid_x,
  cluster_nctaid_x,
  cluster_ctarank,
  cluster_nctarank,
  clusterid_x,
  nclusterid_x,
  dynamic_smem_size,
};

struct warp;
struct instruction;
/// Runs the instruction for the lanes of a mask.
using handler = void (*)(warp&, const instruction&, std::uint32_t mask);

/// What an instruction does to the order of execution; the scheduler handles all but `plain` itself.
enum class flow : std::uint8_t { plain, branch, indexed_branch, leave, barrier, warp_barrier, together };

struct instruction {
  handler run = nullptr;
  flow order = flow::plain;
  bool guarded = false, guard_negated = false;
  std::uint32_t guard = 0;
  std::uint32_t target = 0;            ///< of a branch
  std::vector<std::uint32_t> targets;  ///< of a branch by index
  std::vector<operand> args;           ///< vectors laid flat, results first
  std::vector<std::uint32_t> widths;   ///< elements of each operand as it is written
  type of = type::none, from = type::none;
  std::int64_t number = 0, second = 0;  ///< what the handler's words decode to
  std::vector<std::string> words;       ///< of the opcode, split at its dots
  std::string text;                     ///< as written
  std::uint32_t line = 0;
};

/// Line and text of an instruction, of a long one as much as leaves room for what is said of it.
inline std::string place_of(const instruction& i) {
  constexpr std::size_t most = 120;
  return "PTX line " + std::to_string(i.line) + ": " +
         (i.text.size() <= most ? i.text : i.text.substr(0, most) + "...");
}

struct parameter {
  std::string name;
  std::int64_t offset, bytes;
};

struct kernel {
  std::string name;
  std::vector<parameter> parameters;
  std::int64_t parameter_bytes = 0;
  std::uint32_t registers = 0, predicates = 0;
  std::vector<std::uint64_t> constants;
  std::int64_t shared_bytes = 0;       ///< of variables
  std::int64_t dynamic_offset = 0;     ///< where dynamic shared memory begins
  std::int64_t local_bytes = 0;        ///< of a thread
  std::vector<std::uint32_t> cluster;  ///< .reqnctapercluster
  std::vector<instruction> code;
};

/// Variables of .global and .const, at addresses that don't change.
struct module {
  std::map<std::string, std::vector<std::uint64_t>> variables;
  std::map<std::string, kernel> kernels;
};

/// Throws ptx_error with the line of the text.
std::unique_ptr<module> read_module(const std::string& text);

/// Finds the handler of an instruction and decodes its words. An unknown one throws only when it is run.
void resolve(instruction& i);

}  // namespace msabench::ptx
