#pragma once

#include "mlxx/capi/function_table.h"

namespace mlxx::capi {

// Those of mlxx.h with the prefix mlxx_; embed_texts is mlxx_embed and
// rerank_documents mlxx_rerank.
mlxx_status
embedder_open(const char* name, mlxx_embedder** out, ErrorText error);
mlxx_status embedder_close(mlxx_embedder* embedder, ErrorText error);
mlxx_status embedder_get_info(
    mlxx_embedder* embedder,
    mlxx_embedder_info* info,
    ErrorText error);
mlxx_status embed_texts(
    mlxx_embedder* embedder,
    const char* const* texts,
    size_t text_count,
    const mlxx_embed_options* options,
    float* vectors,
    size_t capacity,
    size_t* count,
    mlxx_embed_result* result,
    ErrorText error);
mlxx_status
reranker_open(const char* name, mlxx_reranker** out, ErrorText error);
mlxx_status reranker_close(mlxx_reranker* reranker, ErrorText error);
mlxx_status rerank_documents(
    mlxx_reranker* reranker,
    const char* query,
    const char* const* documents,
    size_t document_count,
    const mlxx_rerank_options* options,
    float* scores,
    size_t capacity,
    size_t* count,
    mlxx_embed_result* result,
    ErrorText error);

}  // namespace mlxx::capi
