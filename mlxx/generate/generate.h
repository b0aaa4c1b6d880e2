#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mlxx/generate/pipeline.h"
#include "mlxx/generate/sampling.h"

namespace mlxx::generate {

enum class FinishReason { stop, length, cancelled };
std::string_view to_string(FinishReason reason);

struct GenerateOptions {
  SamplingOptions sampling;
  int max_tokens = 256;           // 0 gives no tokens and FinishReason::length
  std::vector<std::string> stop;  // text ends just before the earliest match
  int prefill_step_size = 2048;
  int max_kv_size = 0;  // 0: no limit
};

// One piece of the answer. The pieces concatenated are the result's text.
struct Delta {
  std::string text;             // valid UTF-8; may be empty
  std::vector<int32_t> tokens;  // new since the last delta, EOS not included
};

// Return false to stop (FinishReason::cancelled).
using OnDelta = std::function<bool(const Delta&)>;

struct GenerateResult {
  std::string text;
  std::vector<int32_t> tokens;  // EOS not included
  int prompt_tokens = 0;
  FinishReason finish_reason = FinishReason::stop;
  std::string stop_sequence;        // the stop string that matched, if one did
  double prefill_seconds = 0;       // to the first token
  double decode_seconds = 0;        // from the first token to the last
  double first_decode_seconds = 0;  // the first decode step alone
  size_t peak_memory_bytes = 0;
  double prompt_tokens_per_second() const;
  double decode_tokens_per_second() const;
};

// Generates after `prompt` with fresh caches. Errors: invalid_request (empty
// prompt, prompt over the context with both numbers, options out of range).
GenerateResult generate(
    const Pipeline& pipeline,
    const std::vector<int32_t>& prompt,
    const GenerateOptions& options,
    const OnDelta& on_delta = {});

// As above on caches that already hold the tokens of earlier turns; `prompt`
// is what follows. The caches then hold prompt and answer.
GenerateResult generate(
    const Pipeline& pipeline,
    const std::vector<int32_t>& prompt,
    cache::CacheList& cache,
    const GenerateOptions& options,
    const OnDelta& on_delta = {});

}  // namespace mlxx::generate
