#pragma once

#include <array>
#include <string_view>

namespace mlxx::apps {

// Both ends, to read and to write, of a pipe through which a signal handler
// wakes who waits: never blocking, and not for child processes. internal,
// naming `place`, if there is none to be had.
std::array<int, 2> open_wake_pipe(std::string_view place);

}  // namespace mlxx::apps
