#pragma once

#include "mlxx/base/error.h"

namespace mlxx::apps {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitWrongUse = 2;
inline constexpr int kExitInterrupted = 130;  // 128 + SIGINT, as shells do

struct ErrorMapping {
  ErrorKind kind;
  int exit_code;
  int http_status;
};

// docs/errors.md says the same in words; a test compares the two.
inline constexpr ErrorMapping kErrorMappings[] = {
    {ErrorKind::invalid_request, kExitWrongUse, 400},
    {ErrorKind::unsupported, kExitFailure, 501},
    {ErrorKind::not_found, kExitFailure, 404},
    {ErrorKind::bad_file, kExitFailure, 500},
    {ErrorKind::out_of_memory, kExitFailure, 503},
    {ErrorKind::cancelled, kExitInterrupted, 499},
    {ErrorKind::internal, kExitFailure, 500},
};

constexpr int exit_code(ErrorKind kind) {
  for (const auto& mapping : kErrorMappings) {
    if (mapping.kind == kind) {
      return mapping.exit_code;
    }
  }
  return kExitFailure;
}

}  // namespace mlxx::apps
