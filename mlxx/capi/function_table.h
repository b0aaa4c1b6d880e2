#pragma once

#include <cstddef>

#include "mlxx/capi/mlxx.h"

namespace mlxx::capi {

// What libmlxx calls in libmlxx-impl, found by the symbol below. Plain C types:
// the two libraries each have their own copy of the C++ code under them.

// Receives the message of a failed call, cut off at a character if need be.
struct ErrorText {
  char* text;
  size_t capacity;
};

// The functions of mlxx.h with the same names; none throws.
struct FunctionTable {
  // Both libraries come from one build: anything else is refused.
  size_t size;
  const char* version;

  const char* (*mlx_version)();
  mlxx_status (*model_open)(
      const char* model,
      const mlxx_model_options* options,
      mlxx_model** out,
      ErrorText error);
  mlxx_status (*model_close)(mlxx_model* model, ErrorText error);
  mlxx_status (
      *model_get_info)(mlxx_model* model, mlxx_model_info* info, ErrorText);
  mlxx_status (*tokenize)(
      mlxx_model* model,
      const char* text,
      size_t bytes,
      int flags,
      int32_t* tokens,
      size_t capacity,
      size_t* count,
      ErrorText error);
  mlxx_status (*detokenize)(
      mlxx_model* model,
      const int32_t* tokens,
      size_t token_count,
      int skip_special,
      char* text,
      size_t capacity,
      size_t* count,
      ErrorText error);
  mlxx_status (*apply_chat_template)(
      mlxx_model* model,
      const mlxx_chat* chat,
      char* text,
      size_t capacity,
      size_t* count,
      ErrorText error);
  mlxx_status (*cancel_open)(mlxx_cancel** out, ErrorText error);
  mlxx_status (*cancel_request)(mlxx_cancel* cancel, ErrorText error);
  mlxx_status (*cancel_close)(mlxx_cancel* cancel, ErrorText error);
  mlxx_status (*generate)(
      mlxx_model* model,
      const char* prompt,
      const mlxx_generate_options* options,
      mlxx_text_callback callback,
      void* user,
      mlxx_generate_result* result,
      ErrorText error);
  mlxx_status (
      *embedder_open)(const char* model, mlxx_embedder** out, ErrorText error);
  mlxx_status (*embedder_close)(mlxx_embedder* embedder, ErrorText error);
  mlxx_status (*embedder_get_info)(
      mlxx_embedder* embedder,
      mlxx_embedder_info* info,
      ErrorText error);
  mlxx_status (*embed)(
      mlxx_embedder* embedder,
      const char* const* texts,
      size_t text_count,
      const mlxx_embed_options* options,
      float* vectors,
      size_t capacity,
      size_t* count,
      mlxx_embed_result* result,
      ErrorText error);
  mlxx_status (
      *reranker_open)(const char* model, mlxx_reranker** out, ErrorText error);
  mlxx_status (*reranker_close)(mlxx_reranker* reranker, ErrorText error);
  mlxx_status (*rerank)(
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
  mlxx_status (*memory_get)(mlxx_memory* memory, ErrorText error);
  mlxx_status (*memory_reset_peak)(ErrorText error);
  mlxx_status (*memory_clear_cache)(ErrorText error);
};

inline constexpr const char* kFunctionTableSymbol = "mlxx_functions";
inline constexpr const char* kMainSymbol = "mlxx_main";

}  // namespace mlxx::capi
