// SPDX-License-Identifier: Apache-2.0
// Messages by which a worker says that nothing will come of what it was asked.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "core/json_fields.h"

namespace msabench {

// What such a message of that type tells: suite_error (error), environment_error (no_resources), or usage_error
// (refused, while a plugin is loaded) about the option `field`, whose value was `label`. nullptr: it is another message.
// `last`: the message that would have ended the exchange. Throws usage_error if the message is malformed.
std::exception_ptr told_failure(const json_fields& fields, std::string_view type, std::string_view last,
                                std::string_view field, const std::string& label);

}  // namespace msabench
