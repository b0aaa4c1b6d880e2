#pragma once

#include <span>
#include <string>

#include "mlxx/core/fault_point.h"

namespace mlxx {

// Every step that can be made to fail, in the order of the sources.
std::span<const std::string_view> fault_steps();

// While it lives, `step` fails. The environment is the one place where the
// choice is kept, so that MLXX_FAULT=<step> does the same from outside.
class ScopedFault {
 public:
  explicit ScopedFault(std::string_view step);
  ~ScopedFault();
  ScopedFault(const ScopedFault&) = delete;
  ScopedFault& operator=(const ScopedFault&) = delete;
};

}  // namespace mlxx
