#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/cache/cache.h"
#include "mlxx/core/mlx.h"
#include "mlxx/core/profile.h"
#include "mlxx/models/model.h"

namespace mlxx::apps {

// `value` and the arrays of the cache: what one step has to evaluate.
std::vector<mx::array> with_cache_state(
    const mx::array& value,
    const cache::CacheList& cache);

// Time by kind of operation of some equal steps.
struct StepProfile {
  Profile sum;  // of all steps
  int steps = 0;
  int tokens = 0;  // in all
};

struct BenchProfile {
  std::optional<StepProfile> prefill;
  std::optional<StepProfile> decode;
  double overhead = 0;  // seconds per operation, see profile_overhead()
};

// Time by kind of operation, each evaluated alone: for `prompt` in one chunk
// and for `steps` greedy steps after it. Either may be none.
BenchProfile profile_model(
    const models::Model& model,
    const std::vector<int32_t>& prompt,
    int steps);

// Two tables of text, and what stands under "profile" in the JSON report; of
// one step.
std::string format_bench_profile(const BenchProfile& profile);
Json bench_profile_json(const BenchProfile& profile);

}  // namespace mlxx::apps
