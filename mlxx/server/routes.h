#pragma once

#include "mlxx/server/router.h"
#include "mlxx/server/services.h"

namespace mlxx::server {

// Each adds its endpoints; `services` outlives the router.
// /v1/chat/completions, /v1/completions, /v1/messages, /v1/responses
void add_answer_routes(Router& router, Services& services);
// /v1/responses/ID and its input items
void add_stored_response_routes(Router& router, Services& services);
// /v1/embeddings, /v1/rerank
void add_vector_routes(Router& router, Services& services);
// /tokenize, /detokenize, /apply-template, /v1/messages/count_tokens
void add_text_routes(Router& router, Services& services);
// /v1/models
void add_model_routes(Router& router, Services& services);
// /v1/adapters
void add_adapter_routes(Router& router, Services& services);
// /reset_prefix_cache
void add_cache_routes(Router& router, Services& services);
// /health, /ready, /metrics, /stats
void add_status_routes(Router& router, Services& services);

}  // namespace mlxx::server
