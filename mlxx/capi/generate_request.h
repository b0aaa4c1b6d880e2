#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "mlxx/capi/handles.h"
#include "mlxx/capi/mlxx.h"
#include "mlxx/generate/generate.h"

namespace mlxx::capi {

// Everything that mlxx_generate() was asked for, checked and copied: nothing
// in it refers to the caller's memory.
struct GenerateRequest {
  std::vector<int32_t> prompt;
  generate::GenerateOptions options;
  std::stop_token cancel;  // without a state if there is nothing to cancel it
};

// On the caller's thread: reads no arrays. invalid_request that names the
// option; nothing that was asked for is ignored.
GenerateRequest read_request(
    const OpenModel& model,
    const char* prompt,
    const mlxx_generate_options* options);

}  // namespace mlxx::capi
