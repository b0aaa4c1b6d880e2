#pragma once

#include <string>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/generate/pipeline.h"
#include "mlxx/text/chat_template.h"

namespace mlxx::generate {

// As encode_chat_prompt() of pipeline.h, for a conversation with tools: a JSON
// list, or null or empty for none. The checkpoint's template for tools is
// taken where it has one of its own.
std::vector<int32_t> encode_chat_prompt(
    const Pipeline& pipeline,
    const OrderedJson& messages,
    const OrderedJson& tools,
    const text::RenderOptions& options);

// The text of the same prompt. Its tokens may differ: control tokens inside of
// messages are ordinary characters to encode_chat_prompt() only.
std::string render_chat_prompt(
    const Pipeline& pipeline,
    const OrderedJson& messages,
    const OrderedJson& tools,
    const text::RenderOptions& options);

}  // namespace mlxx::generate
