#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mlxx/server/engine_port.h"

namespace mlxx::server {

// A process (or, in tests, a thread) that runs host_engine().
struct EngineProcess {
  int descriptor = -1;  // our end of its channel; taken over
  // Waits for its end, which it may have to be brought to, and says how it
  // ended: "was killed by signal 9".
  std::function<std::string()> end;
};

struct RemoteEngineOptions {
  std::function<EngineProcess()> start;
  // Before it is started again; doubles each time, up to the longest.
  std::chrono::milliseconds first_wait{200};
  std::chrono::milliseconds longest_wait{30'000};
  // What is loaded now, from a thread of its own; nothing when the process has
  // ended. May be null.
  std::function<void(const std::vector<std::string>& models)> on_loaded;
  // Deaths before it has ever been ready, after which there is no hope.
  int most_false_starts = 3;
};

// The engine in a process that may die at any time: requests that it had then
// fail at once, state() says so, and it is started again. Meanwhile nothing is
// accepted (Busy).
std::shared_ptr<EnginePort> make_remote_engine(RemoteEngineOptions options);

}  // namespace mlxx::server
