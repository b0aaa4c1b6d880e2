#pragma once

#include <string>
#include <string_view>

#include "mlxx/base/json.h"

namespace mlxx::api {

// All JSON that leaves the server: compact, and ill-formed UTF-8 in its texts
// becomes U+FFFD. Numbers that JSON has no form for become null.
std::string write_json(const OrderedJson& value);

// One server-sent event: "data: ...\n\n", with "event: NAME" before it if a
// name is given.
std::string sse_frame(const OrderedJson& data, std::string_view event = "");

// The frame after which nothing comes, of OpenAI's streams.
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

}  // namespace mlxx::api
