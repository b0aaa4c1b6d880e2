#include "mlxx/capi/mlxx.h"

#include <mutex>
#include <string>

#include "mlxx/base/error.h"
#include "mlxx/base/runtime_loader/runtime_loader.h"
#include "mlxx/base/runtime_loader/shared_library.h"
#include "mlxx/capi/function_table.h"
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

char* message_of_thread() {
  thread_local char text[kMessageCapacity] = "";
  return text;
}

ErrorText error_text() {
  return {.text = message_of_thread(), .capacity = kMessageCapacity};
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

mlxx_status require_table(const FunctionTable*& found) {
  found = table();
  if (found) {
    return MLXX_OK;
  }
  mlxx::capi::copy_message("[mlxx] call mlxx_init() first", error_text());
  return MLXX_INVALID_REQUEST;
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
  return message_of_thread();
}

const char* mlxx_version(void) {
  return MLXX_VERSION;
}

mlxx_status mlxx_init(const mlxx_options* options) {
  try {
    mlxx::runtime::LoaderOptions wanted;
    if (options) {
      if (options->size != sizeof(mlxx_options)) {
        mlxx::fail(
            mlxx::ErrorKind::invalid_request,
            "mlxx_init",
            "options.size is {}, this libmlxx expects {}",
            options->size,
            sizeof(mlxx_options));
      }
      if (options->libmlx) {
        wanted.libmlx = options->libmlx;
      }
      if (options->blas) {
        wanted.blas = options->blas;
      }
    }
    std::lock_guard lock(loaded().mutex);
    if (!loaded().table) {
      loaded().table = load(wanted);
    }
    return MLXX_OK;
  } catch (...) {
    return mlxx::capi::describe_current_exception(error_text());
  }
}

const char* mlxx_mlx_version(void) {
  const FunctionTable* found = table();
  return found ? found->mlx_version() : "";
}

const char* mlxx_libmlx_path(void) {
  // Set once, before the table is.
  return table() ? loaded().libmlx.c_str() : "";
}

mlxx_status mlxx_model_open(const char* model, mlxx_model** out) {
  const FunctionTable* found = nullptr;
  if (mlxx_status status = require_table(found); status != MLXX_OK) {
    if (out) {
      *out = nullptr;
    }
    return status;
  }
  return found->model_open(model, out, error_text());
}

void mlxx_model_close(mlxx_model* model) {
  if (const FunctionTable* found = table()) {
    found->model_close(model);
  }
}

mlxx_status mlxx_generate(
    mlxx_model* model,
    const char* prompt,
    const mlxx_generate_options* options,
    mlxx_text_callback callback,
    void* user) {
  const FunctionTable* found = nullptr;
  if (mlxx_status status = require_table(found); status != MLXX_OK) {
    return status;
  }
  return found->generate(model, prompt, options, callback, user, error_text());
}

}  // extern "C"
