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

struct FunctionTable {
  // Both libraries come from one build: anything else is refused.
  size_t size;
  const char* version;

  const char* (*mlx_version)();
  mlxx_status (*model_open)(const char* model, mlxx_model** out, ErrorText);
  void (*model_close)(mlxx_model* model);
  mlxx_status (*generate)(
      mlxx_model* model,
      const char* prompt,
      const mlxx_generate_options* options,
      mlxx_text_callback callback,
      void* user,
      ErrorText error);
};

inline constexpr const char* kFunctionTableSymbol = "mlxx_functions";
inline constexpr const char* kMainSymbol = "mlxx_main";

}  // namespace mlxx::capi
