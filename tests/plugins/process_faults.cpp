// SPDX-License-Identifier: Apache-2.0
// What calls do to the process that loaded the plugin: crash it, hold it, end it, or leave it changed (rules R3 and
// R6).
#include <sys/mman.h>
#include <unistd.h>

#include <cfenv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

/// A store to a page that no process has. The address is volatile, or the compiler would see the fault and make its
/// own.
void crash() {
  volatile std::uintptr_t nowhere = 64;
  *reinterpret_cast<volatile int*>(nowhere) = 1;
}

void hang() {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

constexpr std::size_t chunk_bytes = std::size_t{64} << 20;

}  // namespace

const msabench_plugin* crash_get(const msabench_host* host) {
  crash();
  return copy_of_naive(host, "crash_get");
}

const msabench_plugin* crash_query(const msabench_host* host) {
  return changed(host, "crash_query", [](msabench_plugin& table) {
    table.query = [](const msabench_problem* problem, msabench_capability* out) {
      crash();
      return exact().query(problem, out);
    };
  });
}

const msabench_plugin* crash_plan(const msabench_host* host) {
  return changed(host, "crash_plan", [](msabench_plugin& table) {
    table.plan = [](const msabench_problem* problem, msabench_plan** out) {
      crash();
      return exact().plan(problem, out);
    };
  });
}

const msabench_plugin* crash_workspace(const msabench_host* host) {
  return changed(host, "crash_workspace", [](msabench_plugin& table) {
    table.workspace = [](const msabench_plan* plan, std::uint64_t* bytes, std::uint32_t* alignment) {
      crash();
      return exact().workspace(plan, bytes, alignment);
    };
  });
}

const msabench_plugin* crash_run(const msabench_host* host) {
  return changed(host, "crash_run", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      crash();
      return exact().run(plan, args, workspace, stream);
    };
  });
}

/// Only where attention is computed; select stays right.
const msabench_plugin* crash_attend(const msabench_host* host) {
  return changed(host, "crash_attend", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      if (tensor_at(args, MSABENCH_OUT) != nullptr) crash();
      return exact().run(plan, args, workspace, stream);
    };
  });
}

/// After runs that were right.
const msabench_plugin* crash_destroy(const msabench_host* host) {
  return changed(host, "crash_destroy", [](msabench_plugin& table) {
    table.destroy = [](msabench_plan* plan) {
      exact().destroy(plan);
      crash();
    };
  });
}

const msabench_plugin* abort_run(const msabench_host* host) {
  return changed(host, "abort_run", [](msabench_plugin& table) {
    table.run = [](msabench_plan*, const msabench_args*, void*, void*) -> msabench_status { std::abort(); };
  });
}

const msabench_plugin* hang_get(const msabench_host* host) {
  hang();
  return copy_of_naive(host, "hang_get");
}

const msabench_plugin* hang_query(const msabench_host* host) {
  return changed(host, "hang_query", [](msabench_plugin& table) {
    table.query = [](const msabench_problem* problem, msabench_capability* out) {
      hang();
      return exact().query(problem, out);
    };
  });
}

const msabench_plugin* hang_run(const msabench_host* host) {
  return changed(host, "hang_run", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      hang();
      return exact().run(plan, args, workspace, stream);
    };
  });
}

/// exit(0): the most innocent end that a process can have.
const msabench_plugin* calls_exit(const msabench_host* host) {
  return changed(host, "calls_exit", [](msabench_plugin& table) {
    table.run = [](msabench_plan*, const msabench_args*, void*, void*) -> msabench_status { std::exit(0); };
  });
}

/// _exit(0): no destructor and no atexit handler sees it.
const msabench_plugin* calls_exit_now(const msabench_host* host) {
  return changed(host, "calls_exit_now", [](msabench_plugin& table) {
    table.run = [](msabench_plan*, const msabench_args*, void*, void*) -> msabench_status { _exit(0); };
  });
}

/// An exception across the C boundary.
const msabench_plugin* throws(const msabench_host* host) {
  return changed(host, "throws", [](msabench_plugin& table) {
    table.run = [](msabench_plan*, const msabench_args*, void*, void*) -> msabench_status {
      throw std::runtime_error("thrown from run");
    };
  });
}

/// Chatty, and right.
const msabench_plugin* prints_stdout(const msabench_host* host) {
  return changed(host, "prints_stdout", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      std::puts("hello from a plugin");
      std::fflush(stdout);
      return exact().run(plan, args, workspace, stream);
    };
  });
}

/// Leaves the rounding mode changed; results are right.
const msabench_plugin* flips_fp(const msabench_host* host) {
  return changed(host, "flips_fp", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      const msabench_status status = exact().run(plan, args, workspace, stream);
      std::fesetround(FE_UPWARD);
      return status;
    };
  });
}

/// Leaves a handler for SIGSEGV behind; results are right.
const msabench_plugin* signal_handler(const msabench_host* host) {
  return changed(host, "signal_handler", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      std::signal(SIGSEGV, [](int) { _exit(0); });
      return exact().run(plan, args, workspace, stream);
    };
  });
}

/// Takes memory until there is none.
const msabench_plugin* eats_memory(const msabench_host* host) {
  return changed(host, "eats_memory", [](msabench_plugin& table) {
    table.run = [](msabench_plan*, const msabench_args*, void*, void*) noexcept -> msabench_status {
      for (;;) {
        void* chunk = mmap(nullptr, chunk_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (chunk == MAP_FAILED) std::abort();
        std::memset(chunk, 1, chunk_bytes);
      }
    };
  });
}

/// Allocates in every run and gives it back; results are right.
const msabench_plugin* allocates_run(const msabench_host* host) {
  return changed(host, "allocates_run", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      void* chunk = mmap(nullptr, chunk_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (chunk == MAP_FAILED) return msabench_status{MSABENCH_NO_RESOURCES};
      std::memset(chunk, 1, chunk_bytes);
      const msabench_status status = exact().run(plan, args, workspace, stream);
      munmap(chunk, chunk_bytes);
      return status;
    };
    table.last_error = [] { return "memory 64M: none left; raise the limit"; };
  });
}

}  // namespace msabench::faults
