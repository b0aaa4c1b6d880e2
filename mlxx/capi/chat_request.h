#pragma once

#include <string>
#include <vector>

#include "mlxx/capi/mlxx.h"
#include "mlxx/generate/pipeline.h"

namespace mlxx::capi {

// The prompt of an mlxx_chat, as text and as tokens. invalid_request that names
// the field.
std::string render_chat(
    const generate::Pipeline& pipeline,
    const mlxx_chat* chat);
std::vector<int32_t> encode_chat(
    const generate::Pipeline& pipeline,
    const mlxx_chat* chat);

}  // namespace mlxx::capi
