#pragma once

#include "mlxx/server/engine_channel.h"
#include "mlxx/server/engine_port.h"

namespace mlxx::server {

// Does for the process at the other end what its RemoteEngine asks for;
// returns when that is gone.
void host_engine(EngineChannel& channel, EnginePort& engine);

}  // namespace mlxx::server
