#pragma once

#include <string>

#include "mlxx/base/json.h"

namespace mlxx::apps {

// What can be said of this machine and installation without MLX: the versions,
// the places where a libmlx may be, the NVIDIA driver, processor, memory and
// folders, and under "missing" what the user may want to get, with how.
OrderedJson host_report();

// For people, one fact a line. Knows the keys of host_report() and those that
// `mlxx doctor` adds to it once libmlx is loaded.
std::string format_report(const OrderedJson& report);

// `mlxx doctor` where no libmlx could be loaded: the report and the reason.
// Returns the exit code.
int report_without_libmlx(const std::string& reason, bool as_json);

}  // namespace mlxx::apps
