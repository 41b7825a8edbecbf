// SPDX-License-Identifier: Apache-2.0
// Further faulty plugins, aimed at the executors rather than at the judge: each attacks one thing that the host relies
// on.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

// The number of runs so far, of all plans.
std::atomic<int> runs{0};

template <class Before>
const msabench_plugin* before_run(const msabench_host* host, const char* name, Before) {
  return changed(host, name, [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      Before{}();
      return exact().run(plan, args, workspace, stream);
    };
  });
}

}  // namespace

/// Right while it is warmed up; later an element of the output is another one.
const msabench_plugin* wrong_later(const msabench_host* host) {
  return changed(host, "wrong_later", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      const msabench_status status = exact().run(plan, args, workspace, stream);
      if (status != MSABENCH_OK || ++runs <= 6) return status;
      const msabench_tensor& out = output_of(args);
      if (const std::size_t bytes = extent_bytes(out); bytes > 0)
        std::memset(static_cast<unsigned char*>(out.data) + (bytes / 2 | 3), 0x45, 1);  // of its exponent
      return status;
    };
  });
}

/// An error after a while.
const msabench_plugin* fails_later(const msabench_host* host) {
  return changed(host, "fails_later", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) -> msabench_status {
      if (++runs > 6) return MSABENCH_INTERNAL;
      return exact().run(plan, args, workspace, stream);
    };
  });
}

const msabench_plugin* crash_later(const msabench_host* host) {
  return before_run(host, "crash_later", [] {
    if (++runs == 7) std::raise(SIGSEGV);
  });
}

/// Whatever the limits are.
const msabench_plugin* crash_second_run(const msabench_host* host) {
  return before_run(host, "crash_second_run", [] {
    if (++runs == 2) std::raise(SIGSEGV);
  });
}

/// Bytes that are no message into the socket.
const msabench_plugin* writes_garbage(const msabench_host* host) {
  return before_run(host, "writes_garbage",
                    [] { [[maybe_unused]] const ssize_t n = write(3, "{\"type\": \"done\"}", 16); });
}

/// A well-formed message that claims an end which has not come.
const msabench_plugin* forges_done(const msabench_host* host) {
  return before_run(host, "forges_done", [] {
    const char text[] = "{\"type\": \"launched\", \"launches\": [{\"launch\": 7}]}";
    const unsigned char length[4] = {sizeof text - 1, 0, 0, 0};
    [[maybe_unused]] ssize_t n = write(3, length, sizeof length);
    n = write(3, text, sizeof text - 1);
  });
}

const msabench_plugin* closes_everything(const msabench_host* host) {
  return before_run(host, "closes_everything", [] {
    for (int fd = 3; fd < 64; ++fd) close(fd);
  });
}

/// More output than a pipe holds, and the end of it is what counts.
const msabench_plugin* floods_output(const msabench_host* host) {
  return before_run(host, "floods_output", [] {
    for (int i = 0; i < 100000; ++i) std::fprintf(i % 2 ? stdout : stderr, "line %d\n", i);
    std::fputs("\xff\x1b[2J the end", stdout);
  });
}

/// Writes without end.
const msabench_plugin* floods_for_ever(const msabench_host* host) {
  return before_run(host, "floods_for_ever", [] {
    for (;;) std::puts("again");
  });
}

/// Leaves a child behind that holds every descriptor, and crashes.
const msabench_plugin* orphans(const msabench_host* host) {
  return before_run(host, "orphans", [] {
    if (fork() == 0) {
      std::this_thread::sleep_for(std::chrono::seconds(100));
      _exit(0);
    }
    std::raise(SIGSEGV);
  });
}

/// Writes past the capability that it was given.
const msabench_plugin* overruns_answer(const msabench_host* host) {
  return changed(host, "overruns_answer", [](msabench_plugin& table) {
    table.query = [](const msabench_problem* problem, msabench_capability* out) {
      const msabench_status status = exact().query(problem, out);
      std::memset(out + 1, 0, 8);
      return status;
    };
  });
}

const msabench_plugin* null_plan(const msabench_host* host) {
  return changed(host, "null_plan", [](msabench_plugin& table) {
    table.plan = [](const msabench_problem*, msabench_plan**) { return msabench_status{MSABENCH_OK}; };
  });
}

const msabench_plugin* odd_alignment(const msabench_host* host) {
  return changed(host, "odd_alignment", [](msabench_plugin& table) {
    table.workspace = [](const msabench_plan*, std::uint64_t* bytes, std::uint32_t* alignment) {
      *bytes = 64;
      *alignment = 48;
      return msabench_status{MSABENCH_OK};
    };
  });
}

const msabench_plugin* endless_workspace(const msabench_host* host) {
  return changed(host, "endless_workspace", [](msabench_plugin& table) {
    table.workspace = [](const msabench_plan*, std::uint64_t* bytes, std::uint32_t* alignment) {
      *bytes = ~std::uint64_t{0};
      *alignment = 64;
      return msabench_status{MSABENCH_OK};
    };
  });
}

/// Ten thousand terabytes would fit into an address, but not into a machine.
const msabench_plugin* huge_workspace(const msabench_host* host) {
  return changed(host, "huge_workspace", [](msabench_plugin& table) {
    table.workspace = [](const msabench_plan*, std::uint64_t* bytes, std::uint32_t* alignment) {
      *bytes = std::uint64_t{1} << 46;
      *alignment = 64;
      return msabench_status{MSABENCH_OK};
    };
  });
}

/// Two plans share one scratch variable: each alone is right.
const msabench_plugin* shares_state(const msabench_host* host) {
  return changed(host, "shares_state", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      static std::atomic<int> inside{0}, entries{0};
      const int entered = ++entries;
      const bool alone = ++inside == 1;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      // On a busy machine the other run may have come and gone before this one wakes.
      const bool still_alone = entries.load() == entered;
      const msabench_status status = exact().run(plan, args, workspace, stream);
      if (!alone || !still_alone) *static_cast<unsigned char*>(output_of(args).data) ^= 1;
      --inside;
      return status;
    };
  });
}

/// Fails in the second of two threads only; the text belongs to that thread.
const msabench_plugin* fails_beside(const msabench_host* host) {
  return changed(host, "fails_beside", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      thread_local int of_this_thread = 0;
      const int before = runs++;
      if (before >= 2 && of_this_thread++ == 0) {
        static std::atomic<bool> told{false};
        if (!told.exchange(true)) return msabench_status{MSABENCH_INTERNAL};
      }
      return exact().run(plan, args, workspace, stream);
    };
    table.last_error = [] { return "plan 2: one too many; run one at a time"; };
  });
}

/// A crash after damage: what was damaged is told although the process is gone.
const msabench_plugin* damages_and_crashes(const msabench_host* host) {
  return changed(host, "damages_and_crashes", [](msabench_plugin& table) {
    table.run = [](msabench_plan*, const msabench_args* args, void*, void*) -> msabench_status {
      static_cast<unsigned char*>(output_of(args).data)[-1] = 1;
      static_cast<unsigned char*>(tensor_at(args, MSABENCH_Q)->data)[0] ^= 1;
      std::raise(SIGSEGV);
      return MSABENCH_OK;
    };
  });
}

/// Reads q where it was the first time (rule R1).
const msabench_plugin* keeps_pointer(const msabench_host* host) {
  return changed(host, "keeps_pointer", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      static const volatile unsigned char* kept = nullptr;
      if (kept == nullptr) kept = static_cast<const unsigned char*>(tensor_at(args, MSABENCH_Q)->data);
      static_cast<void>(*kept);
      return exact().run(plan, args, workspace, stream);
    };
  });
}

/// Writes into the workspace of the first launch (rule R1).
const msabench_plugin* keeps_workspace(const msabench_host* host) {
  return changed(host, "keeps_workspace", [](msabench_plugin& table) {
    table.workspace = [](const msabench_plan*, std::uint64_t* bytes, std::uint32_t* alignment) {
      *bytes = 4096;
      *alignment = 64;
      return msabench_status{MSABENCH_OK};
    };
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      static volatile unsigned char* kept = nullptr;
      if (kept == nullptr) kept = static_cast<unsigned char*>(workspace);
      *kept = 1;
      return exact().run(plan, args, workspace, stream);
    };
  });
}

/// A text that lives on the stack of the call that returns it (rule R7).
const msabench_plugin* dangling_text(const msabench_host* host) {
  return changed(host, "dangling_text", [](msabench_plugin& table) {
    table.run = [](msabench_plan*, const msabench_args*, void*, void*) { return msabench_status{MSABENCH_INTERNAL}; };
    table.last_error = []() -> const char* {
      char text[] = "q 7: is not to my liking; send another";
      // Through an integer, or the compiler sees it and returns NULL.
      volatile auto address = reinterpret_cast<std::uintptr_t>(&text[0]);
      __asm__ volatile("" : : "r"(&text[0]) : "memory");
      return reinterpret_cast<const char*>(address);
    };
  });
}

/// Blocks a signal.
const msabench_plugin* blocks_signal(const msabench_host* host) {
  return before_run(host, "blocks_signal", [] {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
  });
}

}  // namespace msabench::faults
