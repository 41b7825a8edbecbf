// SPDX-License-Identifier: Apache-2.0
#include "host/told_failure.h"

#include "core/environment_error.h"
#include "core/error.h"

namespace msabench {

std::exception_ptr told_failure(const json_fields& fields, std::string_view type, std::string_view last,
                                std::string_view field, const std::string& label) {
  std::string text;
  if (type == "error" || type == "no_resources") {
    fields.read("message", text);
    if (type == "error") return std::make_exception_ptr(suite_error("worker: " + text));
    return std::make_exception_ptr(environment_error({"worker", "", text, ""}));
  }
  if (type != "refused" || last != "loaded") return nullptr;
  std::string remedy;
  fields.read("problem", text);
  fields.read("remedy", remedy);
  return std::make_exception_ptr(usage_error({std::string(field), label, text, remedy}));
}

}  // namespace msabench
