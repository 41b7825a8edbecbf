// SPDX-License-Identifier: Apache-2.0
// Where libraries are looked for, in which order, and what is said where there is none.
#include "kernels/common/libraries.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/kernels/changed_environment.h"

namespace {

namespace fs = std::filesystem;
using namespace msabench::kernels;
using msabench::plugin_test::changed_environment;

constexpr const char* no_library = "libmsabench_nobody_has_this.so";

/// Folders with copies of a library that can be opened.
class libraries : public testing::Test {
 protected:
  libraries()
      : folder_(fs::path(testing::TempDir()) / ("msabench-libraries-" + std::to_string(::getpid()) + "-" +
                                                testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "empty");
  }
  ~libraries() override { fs::remove_all(folder_); }

  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  void put_library(const std::string& folder, const std::string& file) const {
    fs::create_directories(folder_ / folder);
    fs::copy_file(fs::path(MSABENCH_STUBS) / "whole/libcublas.so.13", folder_ / folder / file);
  }

 private:
  fs::path folder_;
};

}  // namespace

TEST_F(libraries, first_folder_wins_whatever_its_version) {
  put_library("old", "liba.so.11");
  put_library("new", "liba.so.13");
  const changed_environment named("MSABENCH_CUDA_LIBS", at("empty") + ":" + at("old") + "::" + at("new"));
  const found_library found = open_library("liba.so", {13, 12, 11}, symbol_scope::handle);
  ASSERT_NE(found.handle, nullptr);
  EXPECT_EQ(found.path, at("old/liba.so.11"));
  EXPECT_EQ(found.tried, (std::vector{at("empty"), at("old")}));
}

TEST_F(libraries, newest_version_of_a_folder_wins) {
  put_library("both", "liba.so.11");
  put_library("both", "liba.so.12");
  const changed_environment named("MSABENCH_CUDA_LIBS", at("both"));
  EXPECT_EQ(open_library("liba.so", {13, 12, 11}, symbol_scope::handle).path, at("both/liba.so.12"));
}

TEST_F(libraries, other_versions_are_not_opened) {
  put_library("old", "libmsabench_nobody_has_this.so.10");
  const changed_environment named("MSABENCH_CUDA_LIBS", at("old"));
  EXPECT_EQ(open_library(no_library, {13, 12}, symbol_scope::handle).handle, nullptr);
}

TEST_F(libraries, a_file_that_is_none_is_told_and_passed_over) {
  fs::create_directories(at("broken"));
  std::ofstream(at("broken/liba.so.13")) << "no library";
  put_library("good", "liba.so.13");
  const changed_environment named("MSABENCH_CUDA_LIBS", at("broken") + ":" + at("good"));
  const found_library found = open_library("liba.so", {13}, symbol_scope::handle);
  EXPECT_EQ(found.path, at("good/liba.so.13"));
  ASSERT_EQ(found.tried.size(), 2u);
  EXPECT_EQ(found.tried[0].rfind(at("broken") + " (", 0), 0u) << found.tried[0];
}

TEST_F(libraries, places_in_their_order) {
  put_library("home/lib64", "liba.so.13");
  const changed_environment named("MSABENCH_CUDA_LIBS", at("empty")), home("CUDA_HOME", at("home"));
  const found_library found = open_library("liba.so", {13}, symbol_scope::handle);
  EXPECT_EQ(found.path, at("home/lib64/liba.so.13"));
  EXPECT_EQ(found.tried, (std::vector<std::string>{at("empty"), "the loader's path", at("home/lib64")}));
  const found_library nowhere = open_library(no_library, {13}, symbol_scope::handle);
  EXPECT_EQ(nowhere.handle, nullptr);
  ASSERT_GE(nowhere.tried.size(), 4u);
  EXPECT_EQ(nowhere.tried[3], "/usr/local/cuda/lib64");
}

TEST_F(libraries, python_packages_come_last) {
  put_library("site/nvidia/any/lib", std::string(no_library) + ".13");
  const changed_environment named("MSABENCH_CUDA_LIBS", {}), home("CUDA_HOME", {}), path("PYTHONPATH", at("site"));
  const found_library found = open_library(no_library, {13}, symbol_scope::handle);
  if (found.handle == nullptr && std::system("python3 -c 'import nvidia' 2>/dev/null") != 0)
    GTEST_SKIP() << "there is no python3 that takes packages from PYTHONPATH";
  EXPECT_EQ(found.path, at("site/nvidia/any/lib/") + no_library + ".13");
}

TEST_F(libraries, the_remedy_is_said_however_many_places_there_are) {
  found_library nowhere;
  nowhere.tried.assign(100, "/a/folder/of/some/length");
  const std::string text = not_found("libcublas", nowhere);
  EXPECT_EQ(text.rfind("libcublas: not found in /a/folder/of/some/length, /a", 0), 0u) << text;
  EXPECT_TRUE(text.ends_with(", ...; name its folder in MSABENCH_CUDA_LIBS")) << text;
  EXPECT_LT(text.size(), 512u);
}
