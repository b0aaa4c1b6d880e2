#include "mlxx/capi/mlxx.h"

#include <cstring>
#include <mutex>
#include <string>

#include "mlxx/base/error.h"
#include "mlxx/base/runtime_loader/runtime_loader.h"
#include "mlxx/base/runtime_loader/shared_library.h"
#include "mlxx/capi/function_table.h"
#include "mlxx/capi/guarded.h"
#include "mlxx/capi/sized_struct.h"
#include "mlxx/capi/status.h"

// The thin side of the C ABI: finds libmlx, loads libmlxx-impl, and forwards.

namespace {

using mlxx::capi::ErrorText;
using mlxx::capi::FunctionTable;

// A C library has no object to keep this in: loading is once per process.
struct Loaded {
  std::mutex mutex;
  const FunctionTable* table = nullptr;
  std::string libmlx;
};

Loaded& loaded() {
  static Loaded state;
  return state;
}

constexpr size_t kMessageCapacity = 2048;

// Plain memory: recording an error must not need any.
struct ThreadErrors {
  char recorded[kMessageCapacity];
  char handed_out[kMessageCapacity];
};

ThreadErrors& errors_of_thread() {
  thread_local ThreadErrors errors = {"", ""};
  return errors;
}

ErrorText error_text() {
  return {.text = errors_of_thread().recorded, .capacity = kMessageCapacity};
}

const FunctionTable* load(const mlxx::runtime::LoaderOptions& options) {
  auto runtime = mlxx::runtime::load_libmlx(options);
  void* implementation = mlxx::runtime::load_implementation();
  auto* table = static_cast<const FunctionTable*>(mlxx::runtime::find_symbol(
      implementation,
      mlxx::capi::kFunctionTableSymbol));
  if (!table || table->size != sizeof(FunctionTable) ||
      std::string_view(table->version) != MLXX_VERSION) {
    mlxx::fail(
        mlxx::ErrorKind::bad_file,
        "libmlxx-impl",
        "comes from another build than libmlxx {}",
        MLXX_VERSION);
  }
  loaded().libmlx = runtime.libmlx.string();
  return table;
}

const FunctionTable* table() {
  std::lock_guard lock(loaded().mutex);
  return loaded().table;
}

// Calls `function` of the table, with where to put an error.
template <typename... Parameters, typename... Arguments>
mlxx_status forward(
    mlxx_status (*FunctionTable::*function)(Parameters...),
    Arguments... arguments) noexcept {
  const FunctionTable* found = table();
  if (!found) {
    mlxx::capi::copy_message("[mlxx] call mlxx_init() first", error_text());
    return MLXX_INVALID_REQUEST;
  }
  return (found->*function)(arguments..., error_text());
}

}  // namespace

extern "C" {

const char* mlxx_status_name(mlxx_status status) {
  switch (status) {
    case MLXX_OK:
      return "ok";
    case MLXX_INVALID_REQUEST:
      return "invalid_request";
    case MLXX_UNSUPPORTED:
      return "unsupported";
    case MLXX_NOT_FOUND:
      return "not_found";
    case MLXX_BAD_FILE:
      return "bad_file";
    case MLXX_OUT_OF_MEMORY:
      return "out_of_memory";
    case MLXX_CANCELLED:
      return "cancelled";
    case MLXX_INTERNAL:
      return "internal";
  }
  return "unknown";
}

const char* mlxx_last_error(void) {
  ThreadErrors& errors = errors_of_thread();
  std::memcpy(errors.handed_out, errors.recorded, kMessageCapacity);
  errors.recorded[0] = '\0';
  return errors.handed_out;
}

const char* mlxx_version(void) {
  return MLXX_VERSION;
}

mlxx_status mlxx_init(const mlxx_options* options) {
  return mlxx::capi::guarded(error_text(), [&] {
    const auto given = mlxx::capi::read_struct<mlxx_options>(
        options,
        MLXX_OPTIONS_INIT,
        "mlxx_options");
    mlxx::runtime::LoaderOptions wanted;
    if (given.libmlx) {
      wanted.libmlx = given.libmlx;
    }
    if (given.blas) {
      wanted.blas = given.blas;
    }
    std::lock_guard lock(loaded().mutex);
    if (!loaded().table) {
      loaded().table = load(wanted);
    }
    return MLXX_OK;
  });
}

const char* mlxx_mlx_version(void) {
  const FunctionTable* found = table();
  return found ? found->mlx_version() : "";
}

const char* mlxx_libmlx_path(void) {
  // Set once, before the table is.
  return table() ? loaded().libmlx.c_str() : "";
}

mlxx_status mlxx_model_open(
    const char* model,
    const mlxx_model_options* options,
    mlxx_model** out) {
  if (out) {
    *out = nullptr;
  }
  return forward(&FunctionTable::model_open, model, options, out);
}

mlxx_status mlxx_model_close(mlxx_model* model) {
  return forward(&FunctionTable::model_close, model);
}

mlxx_status mlxx_model_get_info(mlxx_model* model, mlxx_model_info* info) {
  return forward(&FunctionTable::model_get_info, model, info);
}

mlxx_status mlxx_tokenize(
    mlxx_model* model,
    const char* text,
    size_t bytes,
    int flags,
    int32_t* tokens,
    size_t capacity,
    size_t* count) {
  return forward(
      &FunctionTable::tokenize,
      model,
      text,
      bytes,
      flags,
      tokens,
      capacity,
      count);
}

mlxx_status mlxx_detokenize(
    mlxx_model* model,
    const int32_t* tokens,
    size_t token_count,
    int skip_special,
    char* text,
    size_t capacity,
    size_t* count) {
  return forward(
      &FunctionTable::detokenize,
      model,
      tokens,
      token_count,
      skip_special,
      text,
      capacity,
      count);
}

mlxx_status mlxx_apply_chat_template(
    mlxx_model* model,
    const mlxx_chat* chat,
    char* text,
    size_t capacity,
    size_t* count) {
  return forward(
      &FunctionTable::apply_chat_template,
      model,
      chat,
      text,
      capacity,
      count);
}

mlxx_status mlxx_cancel_open(mlxx_cancel** out) {
  if (out) {
    *out = nullptr;
  }
  return forward(&FunctionTable::cancel_open, out);
}

mlxx_status mlxx_cancel_request(mlxx_cancel* cancel) {
  return forward(&FunctionTable::cancel_request, cancel);
}

mlxx_status mlxx_cancel_close(mlxx_cancel* cancel) {
  return forward(&FunctionTable::cancel_close, cancel);
}

mlxx_status mlxx_generate(
    mlxx_model* model,
    const char* prompt,
    const mlxx_generate_options* options,
    mlxx_text_callback callback,
    void* user,
    mlxx_generate_result* result) {
  return forward(
      &FunctionTable::generate,
      model,
      prompt,
      options,
      callback,
      user,
      result);
}

mlxx_status mlxx_embedder_open(const char* model, mlxx_embedder** out) {
  if (out) {
    *out = nullptr;
  }
  return forward(&FunctionTable::embedder_open, model, out);
}

mlxx_status mlxx_embedder_close(mlxx_embedder* embedder) {
  return forward(&FunctionTable::embedder_close, embedder);
}

mlxx_status mlxx_embedder_get_info(
    mlxx_embedder* embedder,
    mlxx_embedder_info* info) {
  return forward(&FunctionTable::embedder_get_info, embedder, info);
}

mlxx_status mlxx_embed(
    mlxx_embedder* embedder,
    const char* const* texts,
    size_t text_count,
    const mlxx_embed_options* options,
    float* vectors,
    size_t capacity,
    size_t* count,
    mlxx_embed_result* result) {
  return forward(
      &FunctionTable::embed,
      embedder,
      texts,
      text_count,
      options,
      vectors,
      capacity,
      count,
      result);
}

mlxx_status mlxx_reranker_open(const char* model, mlxx_reranker** out) {
  if (out) {
    *out = nullptr;
  }
  return forward(&FunctionTable::reranker_open, model, out);
}

mlxx_status mlxx_reranker_close(mlxx_reranker* reranker) {
  return forward(&FunctionTable::reranker_close, reranker);
}

mlxx_status mlxx_rerank(
    mlxx_reranker* reranker,
    const char* query,
    const char* const* documents,
    size_t document_count,
    const mlxx_rerank_options* options,
    float* scores,
    size_t capacity,
    size_t* count,
    mlxx_embed_result* result) {
  return forward(
      &FunctionTable::rerank,
      reranker,
      query,
      documents,
      document_count,
      options,
      scores,
      capacity,
      count,
      result);
}

mlxx_status mlxx_memory_get(mlxx_memory* memory) {
  return forward(&FunctionTable::memory_get, memory);
}

mlxx_status mlxx_memory_reset_peak(void) {
  return forward(&FunctionTable::memory_reset_peak);
}

mlxx_status mlxx_memory_clear_cache(void) {
  return forward(&FunctionTable::memory_clear_cache);
}

}  // extern "C"
