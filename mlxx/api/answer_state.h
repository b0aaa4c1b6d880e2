#pragma once

#include <exception>
#include <memory>

#include "mlxx/api/answer.h"

namespace mlxx::api {

// The error that a request finished with, as it is thrown.
[[noreturn]] void throw_finish(const engine::Finish& finish);

inline bool has_failed(const engine::Event& event) {
  return event.finish &&
      (event.finish->reason == engine::FinishReason::error ||
       event.finish->reason == engine::FinishReason::cancelled);
}

}  // namespace mlxx::api
