// SPDX-License-Identifier: Apache-2.0
#include "host/implementation.h"

#include <fmt/format.h>
#include <link.h>
#include <sched.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "core/environment_error.h"
#include "core/error.h"
#include "host/executor.h"

namespace msabench {
namespace {

namespace fs = std::filesystem;

struct builtin {
  std::string_view name, what;
  device where;
  std::string_view argument = {};
};

constexpr builtin builtins[] = {
    {"cpu", "vectors and tiles on the CPU, by the best instruction set it has", {device_type::cpu, 0}},
    {"naive", "plain fp32 loops on the CPU, the slowest and easiest to read", {device_type::cpu, 0}},
    {"mutants",
     "naive with one planted fault, to try the suite; see `msabench list mutants`",
     {device_type::cpu, 0},
     "ID"},
    {"variants",
     "honest kernels that compute in other ways, to try the suite; see `msabench list variants`",
     {device_type::cpu, 0},
     "NAME"},
    {"cublas_twin", "score, attend and dense of cuBLAS's products, a baseline", {device_type::cuda, 0}},
    {"cudnn", "attention of NVIDIA cuDNN, the dense baseline", {device_type::cuda, 0}},
    {"cuda", "portable kernels for NVIDIA GPUs from sm_80 on, the readable ones", {device_type::cuda, 0}},
    {"cuda_sm90", "kernels for Hopper, and those of cuda for what has none here", {device_type::cuda, 0}},
};

fs::path program_folder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) throw suite_error("can't find the running program: " + error.message());
  return program.parent_path();
}

// The same place in a build folder and once installed; the second one is where the distribution keeps libraries.
fs::path builtin_path(std::string_view name) {
  const std::string file = fmt::format("{}.so", name);
  const fs::path usual = (program_folder() / "../lib/msabench" / file).lexically_normal();
  const fs::path other = (program_folder() / ".." / MSABENCH_LIBRARY_FOLDER / "msabench" / file).lexically_normal();
  std::error_code error;
  return !fs::exists(usual, error) && fs::exists(other, error) ? other : usual;
}

using elf_header = ElfW(Ehdr);

// Zero bytes where the file is shorter.
elf_header read_header(std::istream& file) {
  elf_header header{};
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  return header;
}

// The loader maps segments without looking at the file's length; touching what is not there would be a bus error.
bool is_complete(std::istream& file, const elf_header& header, std::uint64_t file_bytes) {
  for (int i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment{};
    file.clear();
    file.seekg(static_cast<std::streamoff>(header.e_phoff) + i * static_cast<std::streamoff>(sizeof segment));
    if (!file.read(reinterpret_cast<char*>(&segment), sizeof segment)) return false;
    if (segment.p_offset > file_bytes || segment.p_filesz > file_bytes - segment.p_offset) return false;
  }
  return header.e_phnum > 0;
}

// Told without loading: a file that the loader takes runs its constructors.
void require_shared_object(const std::string& label, const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) bad_input("--impl", label, "there is no such file", "give the path of a shared object");
  if (!fs::is_regular_file(status))
    bad_input("--impl", label, "is no regular file", "give the path of a shared object");
  std::ifstream file(path, std::ios::binary);
  if (!file) bad_input("--impl", label, "can't be read", "check its permissions");
  const elf_header header = read_header(file);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_type != ET_DYN)
    bad_input("--impl", label, "is no shared object", "link it with -shared");
  std::ifstream own_file("/proc/self/exe", std::ios::binary);
  const elf_header own = read_header(own_file);
  if (header.e_ident[EI_CLASS] != own.e_ident[EI_CLASS] || header.e_ident[EI_DATA] != own.e_ident[EI_DATA] ||
      header.e_machine != own.e_machine)
    bad_input("--impl", label, "is a shared object of another machine type", "compile it for this machine");
  if (!is_complete(file, header, fs::file_size(path, error)))
    bad_input("--impl", label, "is cut short", "link or copy it again");
}

std::string known_names() {
  std::string names;
  for (const builtin& b : builtins)
    names += fmt::format("{}{}{}{}", names.empty() ? "" : ", ", b.name, b.argument.empty() ? "" : ":", b.argument);
  return names;
}

bool looks_like_a_file(const std::string& text) {
  std::error_code error;
  return text.find('/') != std::string::npos || text.ends_with(".so") || fs::is_regular_file(text, error);
}

// NAME or FILE, and what follows the last colon; a file whose own name has a colon is that file.
std::pair<std::string, std::string> split(const std::string& text) {
  std::error_code error;
  const auto colon = text.rfind(':');
  if (colon == std::string::npos || fs::exists(text, error)) return {text, ""};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

std::string text_of(device d) {
  return d.type == device_type::cpu ? "cpu" : d.id == 0 ? "cuda" : fmt::format("cuda:{}", d.id);
}

}  // namespace

std::vector<builtin_implementation> builtin_implementations() {
  std::vector<builtin_implementation> list;
  for (const builtin& b : builtins) {
    std::error_code error;
    list.push_back({std::string(b.name), std::string(b.what), b.where, fs::is_regular_file(builtin_path(b.name), error),
                    std::string(b.argument)});
  }
  return list;
}

implementation_ref resolve_implementation(const std::string& name_or_file, std::optional<device> asked) {
  if (name_or_file.empty()) bad_input("--impl", "", "is empty", "use " + known_names() + " or the path of a plugin");
  const auto [name, argument] = split(name_or_file);
  for (const builtin& b : builtins) {
    if (b.name != name) continue;
    if (b.argument.empty() != argument.empty())
      bad_input("--impl", name_or_file, b.argument.empty() ? "takes nothing behind a colon" : "is one of many",
                b.argument.empty()
                    ? fmt::format("use {}", b.name)
                    : fmt::format("say which: {}:{} (see `msabench list {}`)", b.name, b.argument, b.name));
    if (asked && asked->type != b.where.type)
      bad_input("--device", text_of(*asked), fmt::format("{} runs on {}", b.name, text_of(b.where)),
                "leave --device out for a built-in implementation");
    const fs::path path = builtin_path(b.name);
    std::error_code error;
    if (!fs::exists(path, error))
      bad_input("--impl", name_or_file, fmt::format("its file {} is missing", path.string()),
                fmt::format("build the target plugin_{}{}", b.name,
                            b.where.type == device_type::cuda ? ", for which the CUDA toolkit has to be there" : ""));
    require_shared_object(name_or_file, path);
    return {name_or_file, path.string(), asked.value_or(b.where), argument};
  }
  if (!looks_like_a_file(name))
    bad_input("--impl", name_or_file, "is no built-in implementation",
              fmt::format("use {} or the path of a plugin (NAME.so)", known_names()));
  require_shared_object(name_or_file, name);
  return {name_or_file, fs::canonical(name).string(), asked.value_or(device{}), argument};
}

std::string worker_executable() {
  const fs::path path = program_folder() / "msabench-worker";
  std::error_code error;
  if (!fs::exists(path, error))
    throw environment_error(
        {"worker", path.string(), "is missing", "build the target msabench_worker, or install again"});
  return path.string();
}

int available_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  // Machines with more cores than the set holds refuse the question.
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return CPU_COUNT(&cores) > 0 ? CPU_COUNT(&cores) : 1;
}

}  // namespace msabench
