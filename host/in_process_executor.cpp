// SPDX-License-Identifier: Apache-2.0
#include "core/error.h"
#include "core/hashes.h"
#include "host/executor.h"
#include "host/implementation.h"
#include "host/launch_recorder.h"

namespace msabench {
namespace {

class no_events : public session_events {
 public:
  void entering(std::string_view) override {}
  bool launched(std::span<const launch_report>) override { return true; }
};

class recording final : public no_events {
 public:
  recording(launch_recorder& recorder, observation& into) : recorder_(recorder), into_(into) {}
  bool launched(std::span<const launch_report> reports) override { return recorder_.record(reports, into_); }

 private:
  launch_recorder& recorder_;
  observation& into_;
};

class in_process_executor final : public executor {
 public:
  in_process_executor(implementation_ref impl, const executor_options& options)
      : impl_(std::move(impl)), threads_(options.threads > 0 ? options.threads : available_cores()) {
    if (impl_.where.type != device_type::cpu)
      bad_input("--in-process", impl_.label, "runs on a device", "leave --in-process out");
  }

  implementation_record info() override {
    const plugin_identity& id = loaded().identity();
    return {id.name.empty() ? impl_.label : id.name, id.version, id.description, impl_.path,
            sha256_file("--impl", impl_.path)};
  }

  observation query(const problem& p) override {
    no_events events;
    return loaded().query(p, events);
  }

  observation execute(input_set& set, const run_spec& how) override {
    launch_recorder recorder(set, how, false);
    observation recorded;
    recording events(recorder, recorded);
    observation seen = loaded().execute(bind(set, recorder.second()), how, events);
    seen.launches = std::move(recorded.launches);
    for (violation& v : recorded.violations) add_violation(seen, std::move(v));
    seen.remarks.push_back("in this process: no limit on time or memory");
    return seen;
  }

 private:
  plugin_session& loaded() {
    no_events events;
    if (!session_)
      session_ = plugin_session::load({impl_.path, impl_.argument}, impl_.where, threads_, events, nullptr);
    return *session_;
  }

  implementation_ref impl_;
  int threads_;
  std::unique_ptr<plugin_session> session_;
};

}  // namespace

std::unique_ptr<executor> make_in_process_executor(const implementation_ref& impl, const executor_options& options) {
  return std::make_unique<in_process_executor>(impl, options);
}

}  // namespace msabench
