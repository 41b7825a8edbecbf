// SPDX-License-Identifier: Apache-2.0
#include "tests/reports/sample_runs.h"

#include <fmt/format.h>

#include <limits>

#include "core/hashes.h"

namespace msabench {

const std::string hostile_text =
    "<b>&\"'|`*_[x](y) ]]> --> \x01\x1b[31m\a\xff\xc3( \xed\xa0\x80 \xef\xbf\xbf \xe2\x80\xa8 {}%s\n# second "
    "line\n\n\tlast\r";

namespace {

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

case_record case_named(const std::string& name, verdict decided) {
  case_record c;
  c.name = name;
  c.definition_sha256 = sha256_hex(name);
  c.decided = decided;
  c.rows_checked = 8;
  c.rows_total = 16;
  c.elapsed_s = 0.125;
  c.repro = "msabench repro " + name + " --impl naive";
  return c;
}

check_result held(const std::string& id) {
  check_result check;
  check.id = id;
  check.passed = true;
  check.value = 0.001;
  check.limit = 0.002;
  check.unit = "abs";
  check.terms = {{"output store", 0.0015}, {"exponential", 0.0005}};
  check.worst = {slot::out, {3, 1, 5}, {"row", "head", "channel"}, 0.25, 0.251};
  return check;
}

check_result violated() {
  auto check = held("K3");
  check.passed = false;
  check.kind = fail_kind::numeric;
  check.value = 0.0204;
  check.named = "block 17 dropped";
  check.cure = "p_operand fp16";
  check.note = "8 of 16 rows beyond the limit";
  check.worst.got = 0.0625;
  check.worst.want = 0.0829;
  return check;
}

check_result not_finite() {
  auto check = violated();
  check.id = "K1";
  check.kind = fail_kind::nonfinite;
  check.value = nan_value;
  check.limit = infinity;
  check.terms = {{"output store", -infinity}};
  check.worst.got = nan_value;
  check.note = hostile_text;
  return check;
}

check_result unseen() {
  auto check = held("K2");
  check.observed = check.passed = false;
  check.note = "no lse";
  return check;
}

numerics plain_numerics() {
  numerics n;
  n.operand = n.v_operand = n.out_store = bf16;
  n.score_acc = n.score_store = n.p_operand = n.pv_acc = n.partial_store = n.ds_operand = fp32;
  return n;
}

run_record base_run() {
  run_record run;
  run.suite_version = "0.1.0";
  run.suite_commit = "0123456789abcdef0123456789abcdef01234567";
  run.lists = {{"smoke", sha256_hex("smoke")}};
  run.argv = {"msabench", "check", "--impl", "naive"};
  run.start_utc = "2026-01-31T12:00:00Z";
  run.seed = std::numeric_limits<std::uint64_t>::max();
  run.level = "smoke";
  run.environment = {{"cpu", "Some CPU | 2 GHz"}, {"threads", 2}, {"flags", {"avx2", "fma"}}};
  run.implementation = {"naive", "1.0", "plain fp32", "/plugins/naive.so", sha256_hex("naive")};
  return run;
}

case_record passing(const std::string& name) {
  auto c = case_named(name, verdict::pass);
  c.checks = {held("K0"), held("K1")};
  c.declared = plain_numerics();
  c.delivers = profile{};
  c.sees = {true, 21.5, "drop_key", "K2", {{"drop_key", 21.5}, {"drop_block", infinity}}};
  return c;
}

case_record insensitive_case() {
  auto c = case_named("attend/m3/q1.n1M/bf16.paged/random/s0", verdict::insensitive);
  c.checks = {held("K1")};
  c.sees = {true, 1.25, "drop_key", "K1", {{"drop_key", 1.25}}};
  c.reason = "drop_key moves K1 by 1.25 x its limit only";
  return c;
}

case_record failing_case() {
  auto c = passing("attend/m3/q1.n128K/bf16.paged/block_code/s0");
  c.decided = verdict::fail;
  c.kind = fail_kind::numeric;
  c.reason = "K3: row 3, head 1: block 17 dropped";
  c.checks.push_back(violated());
  c.checks.push_back(not_finite());
  c.checks.push_back(unseen());
  c.unobserved = {"K2: no lse emitted"};
  c.captured_output = hostile_text;
  c.remarks = {hostile_text};
  c.timing.time_us = {1.5, nan_value};
  c.timing.order = {0, 0};
  return c;
}

case_record warning_case() {
  auto c = passing("attend/m3/q1.n2K/bf16.paged/random/s0");
  c.decided = verdict::quality_warning;
  c.reason = "K4b 0.97 > 0.9";
  auto check = held("K4b");
  check.gate = check.passed = false;
  check.value = 0.97;
  check.limit = 0.9;
  c.checks.push_back(check);
  return c;
}

}  // namespace

run_record clean_run() {
  auto run = base_run();
  run.cases = {passing("select/m3/q1.n4K/bf16.paged/select.gaps/s0"), passing("attend/m3/q1.n4K/bf16.paged/needle/s0")};
  return run;
}

run_record mixed_run() {
  auto run = base_run();
  run.suite_dirty = true;
  run.implementation.description = hostile_text;
  run.argv.push_back(hostile_text);
  run.environment["odd"] = hostile_text;
  run.withdrawn = {{"select/m3/q1.n1K/fp32/select.gap", hostile_text}};
  run.cases = {passing("select/m3/q1.n4K/bf16.paged/select.gaps/s0"), warning_case(), failing_case(),
               insensitive_case()};
  for (const auto v : {verdict::unsupported, verdict::broken_promise, verdict::timeout, verdict::crash,
                       verdict::device_lost, verdict::waived, verdict::xpass, verdict::suite_error}) {
    auto c = case_named(
        fmt::format("attend/h8x2.d64.b32.k4.l1.i0/q1.n{}/fp32.contiguous/random/s0", 100 + static_cast<int>(v)), v);
    c.reason = fmt::format("reason of {}", name(v));
    run.cases.push_back(c);
  }
  run.cases.back().reason = hostile_text;
  return run;
}

run_record partial_run() {
  auto run = clean_run();
  run.cases.resize(1);
  run.partial = true;
  return run;
}

run_record insensitive_run() {
  auto run = clean_run();
  run.cases.push_back(insensitive_case());
  return run;
}

run_record random_run() {
  auto run = base_run();
  run.level.clear();
  run.cases = {passing("select/m3/q1.n4K/bf16.paged/select.gaps/s0"), insensitive_case(), failing_case()};
  run.fuzz = fuzz_record{60, {{"fail K1", "attend/m3/q1.n5_q3.n9/bf16.paged/random/s7", run.cases[2].name, true}}};
  return run;
}

run_record unsupported_run() {
  auto run = base_run();
  run.cases = {case_named("attend/m3/q1.n4K/e4m3.paged/random/s0", verdict::unsupported)};
  run.cases[0].reason = "type e4m3: not done; use bf16";
  return run;
}

run_record empty_run() { return base_run(); }

run_record open_run() {
  auto run = clean_run();
  run.merged_from = {{"first/conform-naive.json", "2026-01-31T12:00:00Z", {"msabench", "check"}, 1, 2, 2, false}};
  run.parts = {{"sanitize", "racecheck", "naive", run.implementation.sha256, part_state::not_run, "no such tool", 0}};
  return run;
}

run_record parts_run() {
  auto run = open_run();
  run.parts.push_back({"sanitize", "memcheck", "naive", run.implementation.sha256, part_state::passed, "", 12.5});
  run.parts.push_back({"faults", "race", "suite", "", part_state::failed, hostile_text, 3});
  return run;
}

std::vector<std::pair<std::string, run_record>> sample_runs() {
  return {{"clean", clean_run()},     {"mixed", mixed_run()},
          {"partial", partial_run()}, {"insensitive", insensitive_run()},
          {"random", random_run()},   {"unsupported", unsupported_run()},
          {"empty", empty_run()},     {"open", open_run()},
          {"parts", parts_run()}};
}

}  // namespace msabench
