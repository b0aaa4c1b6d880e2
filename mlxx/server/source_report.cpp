#include "mlxx/server/source_report.h"

#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace mlxx::server {

OrderedJson memory_report(const engine::SourceStats& source) {
  return {
      {"budget", source.memory_budget},
      {"active", source.active_memory},
      {"pooled", source.pooled_memory},
      {"weights", source.weights},
      {"rows", source.rows},
      {"models_loaded", source.loaded_models.size()},
      {"model_loads", source.loads},
      {"model_unloads", source.unloads}};
}

OrderedJson prefix_cache_report(const engine::SourceStats& source) {
  const auto& prefixes = source.prefixes;
  return {
      {"lookups", prefixes.lookups},
      {"hits", prefixes.hits},
      {"tokens_found", prefixes.tokens_found},
      {"evictions", prefixes.evictions},
      {"bytes", prefixes.bytes},
      {"entries", prefixes.entries},
      {"disk",
       {{"hits", prefixes.disk_hits},
        {"tokens_found", prefixes.disk_tokens_found},
        {"bytes", prefixes.disk_bytes},
        {"files", prefixes.disk_files},
        {"queued", prefixes.disk_queued},
        {"written", prefixes.disk_written},
        {"evicted", prefixes.disk_evicted},
        {"refused", prefixes.disk_refused},
        {"problem", prefixes.disk_problem}}}};
}

void write_source_metrics(
    std::string& out,
    const engine::SourceStats& source,
    const std::string& labels) {
  auto write = [&](const char* name,
                   const char* help,
                   const char* type,
                   uint64_t value) {
    fmt::format_to(
        std::back_inserter(out),
        "# HELP {0} {1}\n# TYPE {0} {2}\n{0}{{{3}}} {4}\n",
        name,
        help,
        type,
        labels,
        value);
  };
  auto gauge = [&](const char* name, const char* help, uint64_t value) {
    write(name, help, "gauge", value);
  };
  auto counter = [&](const char* name, const char* help, uint64_t value) {
    write(name, help, "counter", value);
  };
  const auto& prefixes = source.prefixes;
  gauge(
      "mlxx:memory_budget_bytes",
      "Memory that models and answers may take; 0: no limit.",
      source.memory_budget);
  gauge(
      "mlxx:memory_active_bytes",
      "Memory that arrays hold.",
      source.active_memory);
  gauge(
      "mlxx:memory_pooled_bytes",
      "Freed memory that is kept for new arrays.",
      source.pooled_memory);
  gauge("mlxx:weights_bytes", "Of loaded models.", source.weights);
  gauge(
      "mlxx:rows_promised_bytes",
      "What requests that run may take.",
      source.rows);
  gauge(
      "mlxx:models_loaded",
      "Models in memory.",
      static_cast<uint64_t>(source.loaded_models.size()));
  counter("mlxx:model_loads_total", "Models loaded.", source.loads);
  counter("mlxx:model_unloads_total", "Models unloaded.", source.unloads);
  gauge(
      "mlxx:prefix_cache_bytes",
      "What only kept states of prompts hold.",
      prefixes.bytes);
  gauge(
      "mlxx:prefix_cache_entries",
      "Kept states of prompts.",
      prefixes.entries);
  counter(
      "mlxx:prefix_cache_evictions_total",
      "States dropped for want of room.",
      prefixes.evictions);
  gauge(
      "mlxx:prefix_cache_disk_bytes",
      "Kept states on disk.",
      prefixes.disk_bytes);
  gauge("mlxx:prefix_cache_disk_files", "Their files.", prefixes.disk_files);
  gauge(
      "mlxx:prefix_cache_disk_queued",
      "Pieces that wait to be written.",
      prefixes.disk_queued);
  counter(
      "mlxx:prefix_cache_disk_hit_tokens_total",
      "Tokens of prompts found on disk.",
      prefixes.disk_tokens_found);
  counter(
      "mlxx:prefix_cache_disk_refused_total",
      "Files that were damaged or foreign.",
      prefixes.disk_refused);
}

}  // namespace mlxx::server
