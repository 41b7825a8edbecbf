// SPDX-License-Identifier: Apache-2.0
// What the lanes of a warp have of an operand: registers, constants, special registers, addresses of their own memory.
#include <atomic>

#include "tests/ptx/machine.h"

namespace msabench::ptx {

std::uint32_t warp::predicate(const operand& o) const {
  if (o.kind == operand_kind::predicate) return o.negated ? ~predicates[o.index] : predicates[o.index];
  return in_values(o, 6)[0] != 0 ? ~0u : 0u;  // a constant
}

lane_values warp::in_values(const operand& o, std::size_t place) const {
  auto& row = scratch[place];
  switch (o.kind) {
    case operand_kind::reg:
      return {registers.data() + std::size_t{o.index} * lanes, 1};
    case operand_kind::constant:
      return {&in->of->what->constants[o.index], 0};
    case operand_kind::local:
      for (int lane = 0; lane < lanes; ++lane)
        row[static_cast<std::size_t>(lane)] =
            reinterpret_cast<std::uint64_t>(local.data()) / 16 * 16 + 16 +
            static_cast<std::uint64_t>(lane) * static_cast<std::uint64_t>(in->of->what->local_bytes);
      return {row.data(), 1};
    case operand_kind::predicate:
      for (int lane = 0; lane < lanes; ++lane)
        row[static_cast<std::size_t>(lane)] = (predicates[o.index] ^ (o.negated ? ~0u : 0u)) >> lane & 1;
      return {row.data(), 1};
    case operand_kind::special:
      break;
    case operand_kind::none:
      row[0] = 0;
      return {row.data(), 0};
  }
  const launch& l = *in->of;
  row[0] = 0;
  if (o.index == 1000) {
    row[0] = l.parameter_base;
    return {row.data(), 0};
  }
  using s = special_register;
  const auto by_lane = [&](auto f) -> lane_values {
    for (std::uint32_t lane = 0; lane < lanes; ++lane) row[lane] = static_cast<std::uint64_t>(f(lane));
    return {row.data(), 1};
  };
  const auto thread = [&](std::uint32_t lane) { return number * lanes + lane; };
  static std::atomic<std::uint64_t> ticks;
  switch (static_cast<s>(o.index)) {
    case s::tid_x:
      return by_lane([&](std::uint32_t lane) { return thread(lane) % l.block.x; });
    case s::tid_y:
      return by_lane([&](std::uint32_t lane) { return thread(lane) / l.block.x % l.block.y; });
    case s::tid_z:
      return by_lane([&](std::uint32_t lane) { return thread(lane) / l.block.x / l.block.y; });
    case s::laneid:
      return by_lane([](std::uint32_t lane) { return lane; });
    case s::lanemask_eq:
      return by_lane([](std::uint32_t lane) { return 1u << lane; });
    case s::lanemask_lt:
      return by_lane([](std::uint32_t lane) { return (1u << lane) - 1; });
    case s::lanemask_le:
      return by_lane([](std::uint32_t lane) { return (2u << lane) - 1; });
    case s::lanemask_gt:
      return by_lane([](std::uint32_t lane) { return ~((2u << lane) - 1); });
    case s::lanemask_ge:
      return by_lane([](std::uint32_t lane) { return ~((1u << lane) - 1); });
    case s::ntid_x:
      row[0] = l.block.x;
      break;
    case s::ntid_y:
      row[0] = l.block.y;
      break;
    case s::ntid_z:
      row[0] = l.block.z;
      break;
    case s::ctaid_x:
      row[0] = in->at.x;
      break;
    case s::ctaid_y:
      row[0] = in->at.y;
      break;
    case s::ctaid_z:
      row[0] = in->at.z;
      break;
    case s::nctaid_x:
      row[0] = l.grid.x;
      break;
    case s::nctaid_y:
      row[0] = l.grid.y;
      break;
    case s::nctaid_z:
      row[0] = l.grid.z;
      break;
    case s::warpid:
      row[0] = number;
      break;
    case s::nwarpid:
      row[0] = in->warps.size();
      break;
    case s::smid:
      row[0] = 0;
      break;
    case s::nsmid:
      row[0] = 1;
      break;
    case s::clock:
    case s::clock64:
    case s::globaltimer:
      row[0] = ++ticks;
      break;
    case s::cluster_ctaid_x:
    case s::cluster_ctarank:
      row[0] = in->rank;
      break;
    case s::cluster_nctaid_x:
    case s::cluster_nctarank:
      row[0] = l.cluster;
      break;
    case s::clusterid_x:
      row[0] = in->at.x / l.cluster;
      break;
    case s::nclusterid_x:
      row[0] = l.grid.x / l.cluster;
      break;
    case s::dynamic_smem_size:
      row[0] = static_cast<std::uint64_t>(l.dynamic_shared);
      break;
  }
  return {row.data(), 0};
}

}  // namespace msabench::ptx
