// SPDX-License-Identifier: Apache-2.0
// Which declared number would have let something pass: legal declarations that differ from the given one in one field
// are tried, from the finest admission to the coarsest. "None" then says that no honest declaration explains the error.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "core/numerics.h"
#include "judge/judge.h"

namespace msabench::judge {

class cure_search {
 public:
  // `passes`: whether what failed would pass under a declaration. It is asked of legal ones alone, other than the given.
  cure_search(const subject& what, std::function<bool(const numerics&)> passes)
      : what_(what), passes_(std::move(passes)) {}

  bool would_pass(const numerics& n) const;

  // Each names the field and the value that it would have needed; empty if there is none.
  struct store_field {
    std::string_view name;
    dtype numerics::* type;
    std::uint32_t truncation;  // 0: none
  };
  std::string stores(std::span<const store_field> fields) const;
  std::string operands(dtype storage) const;
  // The shortest chain that would do, between what counts now and the longest that may be declared.
  std::string chain(std::uint32_t numerics::* chain, std::string_view field, std::int64_t now,
                    std::int64_t longest) const;
  std::string exponential() const;

 private:
  const subject& what_;
  std::function<bool(const numerics&)> passes_;
};

}  // namespace msabench::judge
