#pragma once

#include <string>
#include <string_view>

namespace mlxx::server {

// `prefix` and 128 unguessable bits in hexadecimal digits.
std::string random_id(std::string_view prefix);

}  // namespace mlxx::server
