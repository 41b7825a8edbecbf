// SPDX-License-Identifier: Apache-2.0
#include "core/files.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tests/core/temporary_folder.h"
#include "tests/core/thrown.h"

namespace msabench {
namespace {

std::string content(const std::filesystem::path& path) { return read_file("in", path, 1 << 20); }

TEST(writing, ReplacesTheWholeFileAndLeavesNothingElse) {
  const temporary_folder folder;
  write_file_atomically("--json", folder / "r.json", "first");
  EXPECT_EQ(content(folder / "r.json"), "first");
  write_file_atomically("--json", folder / "r.json", "2");
  EXPECT_EQ(content(folder / "r.json"), "2");
  const std::string_view pieces[] = {"a", "", "bc"};
  write_file_atomically("--json", folder / "r.json", pieces);
  EXPECT_EQ(content(folder / "r.json"), "abc");
  write_file_atomically("--json", folder / std::string(255, 'n'), "the longest name");
  EXPECT_EQ(folder.entries(), 2u);
}

TEST(writing, KeepsTheModeOfTheFileItReplaces) {
  const temporary_folder folder;
  write_file_atomically("o", folder / "f", "1");
  ASSERT_EQ(::chmod((folder / "f").c_str(), 0640), 0);
  write_file_atomically("o", folder / "f", "2");
  struct stat status{};
  ASSERT_EQ(::stat((folder / "f").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0640u);
}

TEST(writing, FollowsLinks) {
  const temporary_folder folder;
  std::filesystem::create_directory(folder / "sub");
  std::filesystem::create_symlink("sub/real", folder / "link");
  write_file_atomically("o", folder / "link", "through a link to nothing yet");
  write_file_atomically("o", folder / "link", "again");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(content(folder / "sub/real"), "again");
  std::filesystem::create_symlink("loop", folder / "loop");
  EXPECT_NE(thrown_line([&] { write_file_atomically("o", folder / "loop", ""); }).find("Too many levels"),
            std::string::npos);
}

TEST(writing, SaysWhatIsWrongAndKeepsTheOldFile) {
  const temporary_folder folder;
  write_file_atomically("o", folder / "f", "old");
  const auto line = [](const std::filesystem::path& path) {
    return thrown_line([&] { write_file_atomically("--json", path, "new"); });
  };
  EXPECT_EQ(line(folder.path()), "--json " + folder.path().string() + ": is a folder; give the path of a file");
  EXPECT_NE(line(folder / "missing/f").find(": can't be written: No such file or directory; "), std::string::npos);
  EXPECT_NE(line(folder / "f/g").find(": can't be written: Not a directory; "), std::string::npos);
  EXPECT_NE(line(folder / std::string(256, 'n')).find("File name too long"), std::string::npos);
  EXPECT_EQ(line(""), "--json: the path is empty; give a path that can be written, with space left on its device");
  EXPECT_NE(line("/dev/full").find(": can't be written: No space left on device; "), std::string::npos);
  EXPECT_EQ(content(folder / "f"), "old");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(writing, LeavesDevicesInPlace) {
  write_file_atomically("o", "/dev/null", "gone");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(writing, AFileSizeLimitIsAnErrorNotASignal) {
  const temporary_folder folder;
  write_file_atomically("o", folder / "f", "old");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string line = thrown_line([&] { write_file_atomically("o", folder / "f", std::string(5000, 'x')); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(line.find("File too large"), std::string::npos) << line;
  EXPECT_EQ(content(folder / "f"), "old");
  EXPECT_EQ(folder.entries(), 1u);
  sigset_t pending;
  ASSERT_EQ(sigpending(&pending), 0);
  EXPECT_EQ(sigismember(&pending, SIGXFSZ), 0);
}

TEST(writing, AClosedPipeIsAnErrorNotASignal) {
  const temporary_folder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  // The reader goes away after the writer has opened; the pipe holds far less than what is written.
  std::thread reader([&] { std::ifstream(folder / "pipe").get(); });
  const std::string line = thrown_line([&] { write_file_atomically("o", folder / "pipe", std::string(1 << 22, 'x')); });
  reader.join();
  EXPECT_NE(line.find("Broken pipe"), std::string::npos) << line;
}

TEST(trying, TellsBeforeTheWorkWhetherWritingCanSucceed) {
  const temporary_folder folder;
  require_writable("o", folder / "new");
  require_writable("o", "/dev/null");
  EXPECT_EQ(folder.entries(), 0u);
  write_file_atomically("o", folder / "old", "old");
  require_writable("o", folder / "old");
  EXPECT_EQ(content(folder / "old"), "old");
  EXPECT_NE(thrown_line([&] { require_writable("o", folder / "missing/f"); }).find("No such file"), std::string::npos);
  EXPECT_NE(thrown_line([&] { require_writable("o", folder.path()); }).find("is a folder"), std::string::npos);
  EXPECT_NE(thrown_line([&] { require_writable("o", folder / "new/"); }).find("is a folder"), std::string::npos);
  if (::geteuid() != 0) {
    ASSERT_EQ(::chmod(folder.path().c_str(), 0500), 0);
    EXPECT_NE(thrown_line([&] { require_writable("o", folder / "new"); }).find("Permission denied"), std::string::npos);
    ASSERT_EQ(::chmod(folder.path().c_str(), 0700), 0);
  }
}

TEST(trying, FoldersAreCreated) {
  const temporary_folder folder;
  ensure_folder("--out", folder / "a/b/c");
  ensure_folder("--out", folder / "a/b/c");
  EXPECT_TRUE(std::filesystem::is_empty(folder / "a/b/c"));
  write_file_atomically("o", folder / "f", "");
  EXPECT_NE(thrown_line([&] { ensure_folder("--out", folder / "f"); }).find("--out "), std::string::npos);
  EXPECT_NE(thrown_line([&] { ensure_folder("--out", folder / "f/g"); }).find("Not a directory"), std::string::npos);
  EXPECT_NE(thrown_line([&] { ensure_folder("--out", "/proc/none"); }).find("--out /proc/none: "), std::string::npos);
  EXPECT_NE(thrown_line([&] { ensure_folder("--out", ""); }).find("is empty"), std::string::npos);
}

TEST(reading, WholeFilesUpToALimit) {
  const temporary_folder folder;
  std::string text;
  for (int i = 0; i < 200000; ++i) text += static_cast<char>(i % 251);
  write_file_atomically("o", folder / "f", text);
  EXPECT_EQ(read_file("in", folder / "f", text.size()), text);
  EXPECT_NE(thrown_line([&] { read_file("in", folder / "f", text.size() - 1); }).find("is longer than 199999 bytes"),
            std::string::npos);
  EXPECT_NE(thrown_line([&] { read_file("in", "/dev/zero", 1000); }).find("is longer than 1000 bytes"),
            std::string::npos);
  EXPECT_NE(thrown_line([&] { read_file("in", folder / "none", 1); }).find("can't be read: No such file"),
            std::string::npos);
  EXPECT_NE(thrown_line([&] { read_file("in", folder.path(), 1); }).find("can't be read: Is a directory"),
            std::string::npos);
  EXPECT_NE(thrown_line([&] { read_file("in", "", 1); }).find("is empty"), std::string::npos);
}

TEST(reading, PipesNeverHangAndReadToTheirEnd) {
  const temporary_folder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(content(folder / "pipe"), "");
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::thread writer([&] {
    for (const char* part : {"one ", "two"}) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_GT(::write(ends[1], part, std::char_traits<char>::length(part)), 0);
    }
    ::close(ends[1]);
  });
  EXPECT_EQ(content("/dev/fd/" + std::to_string(ends[0])), "one two");
  writer.join();
  ::close(ends[0]);
}

}  // namespace
}  // namespace msabench
