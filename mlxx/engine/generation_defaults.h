#pragma once

#include <optional>

#include "mlxx/base/json.h"
#include "mlxx/generate/sampling.h"

namespace mlxx::engine {

// What the server's flags say about sampling; absent: nothing.
struct SamplingFlags {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int> top_k;
  std::optional<float> min_p;
};

// What a request that says nothing about sampling gets: the flags, else what
// generation_config.json (an object) says, as transformers reads it:
// temperature, top_p, top_k and min_p count unless do_sample is false, and
// repetition_penalty looks at all tokens; else mlx-lm's defaults, greedy.
// bad_file, with the key, for a value of another type or out of range.
generate::SamplingOptions sampling_defaults(
    const Json& generation_config,
    const SamplingFlags& flags = {});

}  // namespace mlxx::engine
