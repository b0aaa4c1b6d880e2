#pragma once

#include "mlxx/engine/model_text.h"
#include "mlxx/engine/request.h"

namespace mlxx::engine {

// What can be said without the model. Throws invalid_request. `max_rows`: of
// the engine; a request's choices are decoded together.
void check_request(const Request& request, int max_rows);

// What its model makes of a request: token ids within `vocab_size`, and the
// prompt within the context. Throws invalid_request, with the place
// "context_length_exceeded" for a prompt that leaves no room for an answer.
void check_for_model(
    const Request& request,
    const ModelText& text,
    int vocab_size);

// max_tokens, or what the context leaves after the prompt.
int tokens_to_generate(const Request& request, const ModelText& text);

}  // namespace mlxx::engine
