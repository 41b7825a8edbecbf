// SPDX-License-Identifier: Apache-2.0
// Files, read and written so that a failure is one line and never half a file. Every function throws usage_error with
// the given field (the flag or role the user knows), the path, the system's reason and a remedy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace msabench {

// Writes a temporary file in the same folder, syncs and renames it over `path`; after any error the old file is as it
// was and the temporary one is gone. A symbolic link is followed. Devices and pipes are written directly (renaming over
// /dev/null would replace it). A limit on file size is an error like any other, not a signal.
void write_file_atomically(std::string_view field, const std::filesystem::path& path, std::string_view bytes);
// The same for a file given in pieces, written one after the other.
void write_file_atomically(std::string_view field, const std::filesystem::path& path,
                           std::span<const std::string_view> pieces);

// Tries, before any work is done, whether write_file_atomically(path) can succeed: creates and removes a temporary file
// beside it. The parent folder must exist.
void require_writable(std::string_view field, const std::filesystem::path& path);
// Creates the folder and its parents where missing, and tries whether files can be created in it.
void ensure_folder(std::string_view field, const std::filesystem::path& path);

// Reads a file front to back. Pipes are read to their end; a named pipe that nobody writes to reads as empty.
class file_reader {
 public:
  file_reader(std::string_view field, const std::filesystem::path& path);
  file_reader(const file_reader&) = delete;
  file_reader& operator=(const file_reader&) = delete;
  ~file_reader();

  // Fills the buffer and returns its size; less at the end of the file only.
  std::size_t read(std::span<std::byte> buffer);
  // Of a regular file when it was opened; what read() delivers can differ if someone writes to it meanwhile.
  std::optional<std::uint64_t> size_bytes() const noexcept { return size_bytes_; }

 private:
  [[noreturn]] void refuse(int error) const;

  std::string field_, path_;
  int fd_ = -1;
  std::optional<std::uint64_t> size_bytes_;
};

// The whole file; longer than max_bytes is an error.
std::string read_file(std::string_view field, const std::filesystem::path& path, std::uint64_t max_bytes);

}  // namespace msabench
