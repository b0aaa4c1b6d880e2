#pragma once

#include <string>

#include "mlxx/base/json.h"
#include "mlxx/engine/source_stats.h"

namespace mlxx::server {

// What models and kept states take, for /stats: "memory" and "prefix_cache".
OrderedJson memory_report(const engine::SourceStats& source);
OrderedJson prefix_cache_report(const engine::SourceStats& source);

// The same for /metrics, in Prometheus' text format.
void write_source_metrics(
    std::string& out,
    const engine::SourceStats& source,
    const std::string& labels);

}  // namespace mlxx::server
