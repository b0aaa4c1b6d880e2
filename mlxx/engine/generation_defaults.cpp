#include "mlxx/engine/generation_defaults.h"

#include <climits>

#include <nlohmann/json.hpp>

namespace mlxx::engine {

namespace {

// Absent keys keep what `value` is.
void read(
    const JsonView& config,
    const char* key,
    double min,
    double max,
    float& value) {
  if (!config.has(key)) {
    return;
  }
  const double number = config.number(key);
  if (number < min || number > max) {
    config.fail_at(key, "is out of range");
  }
  value = static_cast<float>(number);
}

}  // namespace

generate::SamplingOptions sampling_defaults(
    const Json& generation_config,
    const SamplingFlags& flags) {
  const JsonView config(generation_config, "generation_config.json");
  generate::SamplingOptions sampling;
  // Files without do_sample that name a temperature mean it to be used.
  if (config.boolean_or("do_sample", config.has("temperature"))) {
    sampling.temperature = 1;
    read(config, "temperature", 0, 100, sampling.temperature);
    read(config, "top_p", 0, 1, sampling.top_p);
    read(config, "min_p", 0, 1, sampling.min_p);
    sampling.top_k =
        static_cast<int>(config.integer_or("top_k", 0, 0, INT_MAX));
  }
  if (config.has("repetition_penalty")) {
    read(config, "repetition_penalty", 0, 100, sampling.repetition_penalty);
    sampling.repetition_context_size = 0;
  }
  sampling.temperature = flags.temperature.value_or(sampling.temperature);
  sampling.top_p = flags.top_p.value_or(sampling.top_p);
  sampling.top_k = flags.top_k.value_or(sampling.top_k);
  sampling.min_p = flags.min_p.value_or(sampling.min_p);
  return sampling;
}

}  // namespace mlxx::engine
