#pragma once

#include <string>
#include <vector>

#include "mlxx/server/remote_engine.h"

namespace mlxx::apps {

// The descriptor at which a process that was started here finds its channel.
inline constexpr int kEngineDescriptor = 3;

// This program once more, with these arguments and nothing else that is open
// but the standard streams and the channel. internal if the system refuses.
server::EngineProcess start_engine_process(
    const std::vector<std::string>& arguments);

}  // namespace mlxx::apps
