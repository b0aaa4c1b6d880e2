#include "mlxx/capi/functions.h"

#include "mlxx/capi/answers.h"
#include "mlxx/capi/embeddings.h"
#include "mlxx/capi/models.h"
#include "mlxx/capi/telemetry.h"
#include "mlxx/capi/texts.h"
#include "mlxx/core/mlx.h"

namespace mlxx::capi {

FunctionTable make_function_table() {
  return {
      .size = sizeof(FunctionTable),
      .version = MLXX_VERSION,
      .mlx_version = mx::version,
      .model_open = model_open,
      .model_close = model_close,
      .model_get_info = model_get_info,
      .tokenize = tokenize,
      .detokenize = detokenize,
      .apply_chat_template = apply_chat_template,
      .cancel_open = cancel_open,
      .cancel_request = cancel_request,
      .cancel_close = cancel_close,
      .generate = generate_text,
      .embedder_open = embedder_open,
      .embedder_close = embedder_close,
      .embedder_get_info = embedder_get_info,
      .embed = embed_texts,
      .reranker_open = reranker_open,
      .reranker_close = reranker_close,
      .rerank = rerank_documents,
      .memory_get = memory_get,
      .memory_reset_peak = memory_reset_peak,
      .memory_clear_cache = memory_clear_cache,
  };
}

}  // namespace mlxx::capi
