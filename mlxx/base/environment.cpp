#include "mlxx/base/environment.h"

#include <cstdlib>

#include "mlxx/base/error.h"

namespace mlxx {

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) {
    return std::nullopt;
  }
  return std::string(value);
}

bool environment_flag(const char* name) {
  auto value = environment(name);
  if (!value || *value == "0" || *value == "false" || *value == "no" ||
      *value == "off") {
    return false;
  }
  if (*value == "1" || *value == "true" || *value == "yes" || *value == "on") {
    return true;
  }
  fail(ErrorKind::invalid_request, name, "must be 0 or 1, is '{}'", *value);
}

}  // namespace mlxx
