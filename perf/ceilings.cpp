// SPDX-License-Identifier: Apache-2.0
#include "perf/ceilings.h"

#include <algorithm>

#include "core/statistics.h"

namespace msabench {

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile(values, 0.5);
}

perf_ceilings ceilings_of(const probe_samples& probes) {
  perf_ceilings c;
  if (!probes.source.empty()) c.source = "measured between the samples, medians: " + probes.source;
  if (probes.bytes_per_s.empty()) return c;
  c.bytes_per_s = median_of(probes.bytes_per_s);
  if (!probes.flops_per_s.empty())
    for (const std::string& type : probes.types) c.flops[type] = median_of(probes.flops_per_s);
  if (!probes.e4m3_flops_per_s.empty()) c.flops["e4m3"] = median_of(probes.e4m3_flops_per_s);
  c.flops_samples = probes.flops_per_s;
  c.e4m3_samples = probes.e4m3_flops_per_s;
  c.bytes_samples = probes.bytes_per_s;
  return c;
}

perf_ceilings ceilings_over(std::span<const perf_point> points, const perf_ceilings& assumed) {
  std::vector<double> flops, of_e4m3, bytes;
  for (const auto& p : points) {
    of_e4m3.insert(of_e4m3.end(), p.ceilings.e4m3_samples.begin(), p.ceilings.e4m3_samples.end());
    flops.insert(flops.end(), p.ceilings.flops_samples.begin(), p.ceilings.flops_samples.end());
    bytes.insert(bytes.end(), p.ceilings.bytes_samples.begin(), p.ceilings.bytes_samples.end());
  }
  perf_ceilings c = assumed;
  if (!flops.empty()) {
    for (auto& [type, peak] : c.flops) {
      // A limit apart from the others, where a machine has one.
      const bool own = type == "e4m3" && !(of_e4m3.empty() && assumed.e4m3_samples.empty());
      if (!own || !of_e4m3.empty()) peak = median_of(own ? of_e4m3 : flops);
    }
    c.bytes_per_s = median_of(bytes);
  }
  c.flops_samples.clear();
  c.e4m3_samples.clear();
  c.bytes_samples.clear();
  return c;
}

void keep_higher(perf_ceilings& c, const perf_ceilings& other) {
  for (auto& [type, flops] : c.flops)
    if (const auto at = other.flops.find(type); at != other.flops.end()) flops = std::max(flops, at->second);
  c.bytes_per_s = std::max(c.bytes_per_s, other.bytes_per_s);
}

}  // namespace msabench
