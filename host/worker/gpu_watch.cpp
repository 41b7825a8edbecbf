// SPDX-License-Identifier: Apache-2.0
#include "host/worker/gpu_watch.h"

#include <dlfcn.h>

#include <type_traits>

namespace msabench {
namespace {

// nvml.h: functions and constants of NVML's binary interface.
class nvml_watch final : public gpu_watch {
 public:
  struct rates {
    unsigned gpu = 0, memory = 0;  // per cent
  };

  bool open_on(const std::string& bus) {
    void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    int (*init)() = nullptr;
    int (*handle_of)(const char*, void**) = nullptr;
    const auto find = [&](auto& to, const char* symbol) {
      to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(::dlsym(library, symbol));
      return to != nullptr;
    };
    const bool complete = find(init, "nvmlInit_v2") && find(handle_of, "nvmlDeviceGetHandleByPciBusId_v2") &&
                          find(clock_, "nvmlDeviceGetClockInfo") && find(power_, "nvmlDeviceGetPowerUsage") &&
                          find(temperature_, "nvmlDeviceGetTemperature") &&
                          find(utilization_, "nvmlDeviceGetUtilizationRates") &&
                          (find(reasons_, "nvmlDeviceGetCurrentClocksEventReasons") ||
                           find(reasons_, "nvmlDeviceGetCurrentClocksThrottleReasons"));
    find(fields_, "nvmlDeviceGetFieldValues");
    return complete && init() == 0 && handle_of(bus.c_str(), &device_) == 0;
  }

  std::optional<gpu_reading> read() override {
    constexpr int sm_clock = 1, gpu_sensor = 0;
    unsigned mhz = 0, milliwatts = 0, celsius = 0;
    unsigned long long reasons = 0;
    rates busy;
    if (clock_(device_, sm_clock, &mhz) != 0 || power_(device_, &milliwatts) != 0 ||
        temperature_(device_, gpu_sensor, &celsius) != 0 || reasons_(device_, &reasons) != 0 ||
        utilization_(device_, &busy) != 0)
      return std::nullopt;
    if (const auto now = power_now()) milliwatts = *now;
    return gpu_reading{static_cast<double>(mhz), milliwatts * 1e-3, static_cast<double>(celsius), reasons,
                       busy.gpu / 100.0};
  }

 private:
  // nvmlFieldValue_t; its value is an unsigned number here.
  struct field {
    unsigned id = 0, scope = 0;
    long long timestamp = 0, latency = 0;
    int type = 0, status = 0;
    unsigned value = 0, rest = 0;
  };
  static_assert(sizeof(field) == 40);

  // The usual call tells the average of a second, which is longer than most of what is timed.
  std::optional<unsigned> power_now() const {
    constexpr unsigned instant_power = 186;
    constexpr int unsigned_int = 1;
    field asked;
    asked.id = instant_power;
    if (fields_ == nullptr || fields_(device_, 1, &asked) != 0 || asked.status != 0 || asked.type != unsigned_int)
      return std::nullopt;
    return asked.value;
  }

  void* device_ = nullptr;
  int (*clock_)(void*, int, unsigned*) = nullptr;
  int (*power_)(void*, unsigned*) = nullptr;
  int (*temperature_)(void*, int, unsigned*) = nullptr;
  int (*reasons_)(void*, unsigned long long*) = nullptr;
  int (*utilization_)(void*, rates*) = nullptr;
  int (*fields_)(void*, int, field*) = nullptr;
};

}  // namespace

std::unique_ptr<gpu_watch> gpu_watch::open(const std::string& bus) {
  auto watch = std::make_unique<nvml_watch>();
  if (!watch->open_on(bus)) return nullptr;
  return watch;
}

}  // namespace msabench
