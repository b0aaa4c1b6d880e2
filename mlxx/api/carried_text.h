#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mlxx::api {

// Text that a client gets in a form it does not read and sends back later, such
// as reasoning that it asked not to see. Not a secret: it is base64.
std::string carry_text(std::string_view text);
// What carry_text() was given; nothing for any other string.
std::optional<std::string> carried_text(std::string_view carried);

// Standard base64 with padding (RFC 4648, section 4).
std::string base64_of(std::string_view bytes);
// Nothing for what is no base64, in the strict form that base64_of() writes.
std::optional<std::string> bytes_of_base64(std::string_view text);

}  // namespace mlxx::api
