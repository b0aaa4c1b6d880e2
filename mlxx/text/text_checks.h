#pragma once

#include <string_view>

namespace mlxx::text {

// invalid_request unless `text` is valid UTF-8 of at most 16 MiB.
void check_text(std::string_view text);

}  // namespace mlxx::text
