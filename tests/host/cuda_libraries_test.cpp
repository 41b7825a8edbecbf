// SPDX-License-Identifier: Apache-2.0
#include "host/worker/cuda_libraries.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "host/executor.h"

namespace msabench {
namespace {

namespace fs = std::filesystem;

class cuda_libraries : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "msabench_libraries_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
    for (const char* name : {"chosen", "toolkit/lib64"}) fs::create_directories(folder / name);
    setenv("CUDA_HOME", (folder / "toolkit").c_str(), 1);
  }
  void TearDown() override {
    unsetenv("CUDA_HOME");
    unsetenv("MSABENCH_CUDA_LIBS");
    fs::remove_all(folder);
  }

  // Any shared object will do.
  void put(const std::string& where) const {
    fs::copy_file(resolve_implementation("naive", std::nullopt).path, folder / where);
  }

  fs::path folder;
};

TEST_F(cuda_libraries, are_searched_in_order_and_that_is_told) {
  put("toolkit/lib64/libmsabench_none.so.3");
  auto found = open_cuda_library("libmsabench_none.so", {4, 3});
  ASSERT_NE(found.handle, nullptr);
  EXPECT_EQ(found.path, (folder / "toolkit/lib64/libmsabench_none.so.3").string());
  EXPECT_EQ(found.place, "the toolkit");
  EXPECT_EQ(found.searched, "$MSABENCH_CUDA_LIBS (none), the loader's path, the toolkit (" +
                                (folder / "toolkit/lib64").string() +
                                ":/usr/local/cuda/lib64), python3's nvidia packages (not looked at)");

  put("chosen/libmsabench_none.so.3");
  setenv("MSABENCH_CUDA_LIBS", (":" + (folder / "nowhere").string() + ":" + (folder / "chosen").string()).c_str(), 1);
  found = open_cuda_library("libmsabench_none.so", {4, 3});
  EXPECT_EQ(found.path, (folder / "chosen/libmsabench_none.so.3").string());
  EXPECT_EQ(found.place, "$MSABENCH_CUDA_LIBS");
  EXPECT_TRUE(
      found.searched.ends_with("the loader's path (not looked at), the toolkit (not looked at), python3's nvidia "
                               "packages (not looked at)"));
}

TEST_F(cuda_libraries, newest_major_version_of_a_place_wins) {
  put("toolkit/lib64/libmsabench_two.so.3");
  put("toolkit/lib64/libmsabench_two.so.4");
  EXPECT_TRUE(open_cuda_library("libmsabench_two.so", {4, 3}).path.ends_with("libmsabench_two.so.4"));
}

TEST_F(cuda_libraries, one_on_the_loaders_path_is_named_by_its_file) {
  const auto found = open_cuda_library("libm.so", {6});
  EXPECT_EQ(found.place, "the loader's path");
  EXPECT_TRUE(fs::path(found.path).is_absolute()) << found.path;
}

TEST_F(cuda_libraries, none_is_no_error_and_tells_all_places) {
  const auto found = open_cuda_library("libmsabench_nowhere.so", {1});
  EXPECT_EQ(found.handle, nullptr);
  EXPECT_TRUE(found.path.empty());
  EXPECT_NE(found.searched.find("python3's nvidia packages ("), std::string::npos);
  EXPECT_EQ(found.searched.find("not looked at"), std::string::npos);
}

}  // namespace
}  // namespace msabench
