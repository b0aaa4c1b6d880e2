#pragma once

#include <optional>
#include <string>

namespace mlxx {

// The value of an environment variable; an empty value counts as unset.
// Every MLXX_ name that is read stands in docs/environment.md (a test checks).
std::optional<std::string> environment(const char* name);

// True for 1, true, yes, on; false for 0, false, no, off or unset. Anything
// else is ErrorKind::invalid_request.
bool environment_flag(const char* name);

}  // namespace mlxx
