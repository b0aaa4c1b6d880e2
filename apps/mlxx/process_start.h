#pragma once

#include <chrono>

namespace mlxx::apps {

// When the operating system started this process, so that loading libraries
// counts too. Accurate to 10 ms on Linux. Where the system does not say, the
// time of the call.
std::chrono::steady_clock::time_point process_start();

}  // namespace mlxx::apps
