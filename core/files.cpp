// SPDX-License-Identifier: Apache-2.0
#include "core/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.h"

namespace msabench {
namespace {

namespace fs = std::filesystem;

std::string reason(int error) { return std::generic_category().message(error); }

// While it lives, writing past a file-size limit or into a closed pipe returns an error in this thread instead of
// killing the process. A signal that such a write leaves pending is taken away, one that was blocked before is none of
// ours.
class write_signals_off {
 public:
  write_signals_off() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGXFSZ);
    sigaddset(&signals_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  write_signals_off(const write_signals_off&) = delete;
  write_signals_off& operator=(const write_signals_off&) = delete;
  ~write_signals_off() {
    for (const int signal : {SIGXFSZ, SIGPIPE})
      if (sigismember(&before_, signal) == 1) sigdelset(&signals_, signal);
    const timespec now{};
    while (sigtimedwait(&signals_, nullptr, &now) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t signals_{}, before_{};
};

// 0, or errno.
int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), std::min<std::size_t>(bytes.size(), std::size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return EIO;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return 0;
}

int write_all(int fd, std::span<const std::string_view> pieces) {
  for (const std::string_view piece : pieces)
    if (const int error = write_all(fd, piece)) return error;
  return 0;
}

constexpr std::string_view remedy = "give a path that can be written, with space left on its device";

[[noreturn]] void refuse(std::string_view field, const fs::path& path, std::string_view what, int error) {
  bad_input(field, path.string(), fmt::format("{}: {}", what, reason(error)), remedy);
}

// Where the path leads once symbolic links are followed. A link to nothing leads to where its target would be.
fs::path final_target(std::string_view field, fs::path path) {
  for (int links = 0; links < 40; ++links) {
    std::error_code error;
    if (!fs::is_symlink(fs::symlink_status(path, error))) return path;
    const fs::path target = fs::read_symlink(path, error);
    if (error) refuse(field, path, "can't be followed", error.value());
    path = target.is_absolute() ? target : path.parent_path() / target;
  }
  refuse(field, path, "can't be followed", ELOOP);
}

enum class target_kind { absent, regular, special };

// What lies at path; a folder, or a file that may not be written, is refused.
target_kind examine(std::string_view field, const fs::path& path) {
  if (path.empty()) bad_input(field, "", "the path is empty", remedy);
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return target_kind::absent;
    refuse(field, path, "can't be written", errno);
  }
  if (S_ISDIR(status.st_mode)) bad_input(field, path.string(), "is a folder", "give the path of a file");
  if (::access(path.c_str(), W_OK) != 0) refuse(field, path, "can't be written", errno);
  return S_ISREG(status.st_mode) ? target_kind::regular : target_kind::special;
}

// A file beside `path` that goes away unless it was renamed.
class temporary_file {
 public:
  temporary_file(std::string_view field, const fs::path& path) {
    static std::atomic<unsigned> counter{0};
    for (;;) {
      // Not derived from the file's own name, which may already be as long as names can be.
      path_ = path.parent_path() / fmt::format(".msabench.{}.{}.tmp", ::getpid(), counter++);
      fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
      if (fd_ >= 0) return;
      if (errno != EEXIST) refuse(field, path, "can't be written", errno);
    }
  }
  temporary_file(const temporary_file&) = delete;
  temporary_file& operator=(const temporary_file&) = delete;
  ~temporary_file() {
    if (fd_ >= 0) ::close(fd_);
    if (!renamed_) ::unlink(path_.c_str());
  }

  // 0, or errno of the first step that failed.
  int write_and_sync(std::span<const std::string_view> pieces, const fs::path& old_file) {
    if (const int error = write_all(fd_, pieces)) return error;
    struct stat old_status{};
    if (::stat(old_file.c_str(), &old_status) == 0) ::fchmod(fd_, old_status.st_mode & 07777);
    // Some file systems can't sync; that is no reason to lose the file.
    if (::fsync(fd_) != 0 && errno != EINVAL && errno != ENOTSUP) return errno;
    return ::close(std::exchange(fd_, -1)) == 0 ? 0 : errno;
  }

  // A full file system still makes files: only writing a block shows it.
  int try_writing() const {
    const std::string block(4096, '\n');
    const std::string_view pieces[] = {block};
    return write_all(fd_, pieces);
  }

  int rename_to(const fs::path& path) {
    if (::rename(path_.c_str(), path.c_str()) != 0) return errno;
    renamed_ = true;
    return 0;
  }

 private:
  fs::path path_;
  int fd_ = -1;
  bool renamed_ = false;
};

}  // namespace

void write_file_atomically(std::string_view field, const fs::path& path, std::span<const std::string_view> pieces) {
  const write_signals_off quiet;
  if (examine(field, path) == target_kind::special) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) refuse(field, path, "can't be written", errno);
    int error = write_all(fd, pieces);
    if (::close(fd) != 0 && error == 0) error = errno;
    if (error != 0) refuse(field, path, "can't be written", error);
    return;
  }
  const fs::path target = final_target(field, path);
  temporary_file file(field, target);
  if (const int error = file.write_and_sync(pieces, target)) refuse(field, path, "can't be written", error);
  if (const int error = file.rename_to(target)) refuse(field, path, "can't be replaced", error);
}

void write_file_atomically(std::string_view field, const fs::path& path, std::string_view bytes) {
  write_file_atomically(field, path, std::span<const std::string_view>(&bytes, 1));
}

void require_writable(std::string_view field, const fs::path& path) {
  if (examine(field, path) == target_kind::special) return;
  if (!path.has_filename()) bad_input(field, path.string(), "is a folder", "give the path of a file");
  const write_signals_off quiet;
  const temporary_file trial(field, final_target(field, path));
  if (const int error = trial.try_writing()) refuse(field, path, "can't be written", error);
}

void ensure_folder(std::string_view field, const fs::path& path) {
  if (path.empty()) bad_input(field, "", "the path is empty", "give a folder");
  std::error_code error;
  fs::create_directories(path, error);
  if (error) refuse(field, path, "the folder can't be created", error.value());
  if (!fs::is_directory(path, error)) bad_input(field, path.string(), "is not a folder", "give a folder");
  const temporary_file trial(field, path / "trial");
}

constexpr std::string_view read_remedy = "give a readable file";

file_reader::file_reader(std::string_view field, const fs::path& path) : field_(field), path_(path.string()) {
  if (path.empty()) bad_input(field, "", "the path is empty", read_remedy);
  // Opened without blocking, since a named pipe that nobody writes to would never open.
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) refuse(errno);
  struct stat status{};
  int error = ::fstat(fd_, &status) != 0 ? errno : 0;
  if (error == 0 && S_ISDIR(status.st_mode)) error = EISDIR;
  if (error != 0) {
    ::close(fd_);
    refuse(error);
  }
  if (S_ISREG(status.st_mode)) {
    size_bytes_ = static_cast<std::uint64_t>(status.st_size);
  } else {
    ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) & ~O_NONBLOCK);
  }
}

file_reader::~file_reader() { ::close(fd_); }

void file_reader::refuse(int error) const { bad_input(field_, path_, "can't be read: " + reason(error), read_remedy); }

std::size_t file_reader::read(std::span<std::byte> buffer) {
  std::size_t done = 0;
  while (done < buffer.size()) {
    const ssize_t n =
        ::read(fd_, buffer.data() + done, std::min<std::size_t>(buffer.size() - done, std::size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) refuse(errno);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

std::string read_file(std::string_view field, const fs::path& path, std::uint64_t max_bytes) {
  file_reader file(field, path);
  std::string content;
  std::vector<char> piece(std::size_t{1} << 16);
  for (;;) {
    const std::size_t n = file.read(std::as_writable_bytes(std::span(piece)));
    content.append(piece.data(), n);
    if (content.size() > max_bytes)
      bad_input(field, path.string(), fmt::format("is longer than {} bytes", max_bytes), "give a shorter file");
    if (n < piece.size()) return content;
  }
}

}  // namespace msabench
