// SPDX-License-Identifier: Apache-2.0
// Names and files of implementations: what is taken, and the one line for what is not.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "host/implementation.h"
#include "tests/host/small_case.h"

using namespace msabench;
using namespace msabench::host_test;

namespace {

class scratch_folder {
 public:
  scratch_folder() {
    std::string name = testing::TempDir() + "msabench-XXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  ~scratch_folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name, std::string_view bytes) const {
    const auto path = path_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string refusal(const std::string& text, std::optional<device> asked = {}) {
  try {
    resolve_implementation(text, asked);
  } catch (const usage_error& e) {
    return e.what();
  }
  return "accepted";
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST(implementation, builtin_names_are_found_beside_the_program) {
  const implementation_ref naive = resolve_implementation("naive", {});
  EXPECT_TRUE(std::filesystem::equivalent(naive.path, plugin_path("naive")));
  EXPECT_EQ(naive.where, device{});
  bool listed = false;
  for (const auto& b : builtin_implementations()) listed |= b.name == "naive" && b.present && !b.what.empty();
  EXPECT_TRUE(listed);
}

TEST(implementation, files_are_taken_by_path) {
  const implementation_ref ref = resolve_implementation(plugin_path("crash_run"), device{});
  EXPECT_TRUE(std::filesystem::path(ref.path).is_absolute());
  EXPECT_EQ(ref.label, plugin_path("crash_run"));
}

TEST(implementation, what_is_no_plugin_is_told_in_one_line) {
  const scratch_folder folder;
  EXPECT_TRUE(contains(refusal("naiv"),
                       "--impl naiv: is no built-in implementation; use cpu, naive, mutants:ID, variants:NAME"))
      << refusal("naiv");
  EXPECT_TRUE(contains(refusal(""), "is empty"));
  EXPECT_TRUE(contains(refusal("/nowhere/x.so"), "there is no such file"));
  EXPECT_TRUE(contains(refusal(folder.path().string()), "is no regular file"));
  EXPECT_TRUE(contains(refusal(folder.file("a.so", "")), "is no shared object"));
  EXPECT_TRUE(contains(refusal(folder.file("b.so", "#!/bin/sh\necho a plugin, they said\n")), "is no shared object"));
  std::string other_machine(
      "\x7f"
      "ELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\xf3\0",
      20);
  EXPECT_TRUE(contains(refusal(folder.file("c.so", other_machine)), "another machine type"));
  other_machine[16] = 1;  // a relocatable object
  EXPECT_TRUE(contains(refusal(folder.file("d.o.so", other_machine)), "is no shared object"));
}

TEST(implementation, a_device_that_contradicts_is_refused) {
  const device cuda{device_type::cuda, 0};
  EXPECT_TRUE(contains(refusal("naive", cuda), "--device cuda: naive runs on cpu")) << refusal("naive", cuda);
  const device second{device_type::cuda, 1};
  EXPECT_EQ(resolve_implementation(plugin_path("crash_run"), second).where, second)
      << "a file says where it runs when it is loaded";
  EXPECT_EQ(refusal("naive", device{}), "accepted");
}

TEST(implementation, a_truncated_shared_object_is_cut_short) {
  const scratch_folder folder;
  std::ifstream whole(plugin_path("naive"), std::ios::binary);
  std::string bytes(4096, 0);
  whole.read(bytes.data(), 4096);
  for (const std::size_t kept : {24, 64, 100, 4096}) {
    const std::string text = refusal(folder.file("half.so", bytes.substr(0, kept)));
    EXPECT_TRUE(contains(text, "cut short") || contains(text, "no shared object")) << text;
  }
}

TEST(implementation, an_executable_is_bad_input_at_load) {
  const auto on = make_worker_executor(resolve_implementation(worker_executable(), {}), {});
  EXPECT_THROW(on->info(), usage_error);
}

TEST(implementation, the_worker_started_by_hand_says_so) {
  const int status = std::system((worker_executable() + " 2>/dev/null").c_str());
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 64);
}

TEST(environment, holds_simple_values_only) {
  const nlohmann::json e = environment();
  for (const char* key :
       {"cpu", "architecture", "cores", "cores_available", "memory_bytes", "os", "kernel", "compiler", "libc"})
    EXPECT_TRUE(e.contains(key)) << key;
  for (const auto& [key, value] : e.items()) EXPECT_TRUE(value.is_string() || value.is_number()) << key;
  EXPECT_GE(e["cores_available"].get<int>(), 1);
  EXPECT_GT(e["memory_bytes"].get<std::int64_t>(), 0);
  EXPECT_NO_THROW(e.dump());
}
