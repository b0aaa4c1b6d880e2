#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/generate/pipeline.h"
#include "mlxx/generate/sampling.h"
#include "mlxx/generate/sequence.h"

namespace mlxx::generate {

enum class FinishReason { stop, length, cancelled };
std::string_view to_string(FinishReason reason);

// Called with the prompt tokens computed so far and their total (tokens that
// a Sequence already held count as computed): once at the start, after each
// chunk, and when the first token is there.
using OnPrefill = std::function<void(int done, int total)>;

// Whether decode steps run as a graph that is recorded once (CompiledStep).
// `automatic` is where that has been measured to be faster: nowhere yet. On the
// CPU `on` computes layer by layer, in place of a kernel for the whole decoder.
enum class CompileDecode { automatic, on, off };
// "auto", "on", "off"; another name is an invalid_request.
CompileDecode compile_decode_named(std::string_view name);

struct GenerateOptions {
  SamplingOptions sampling;
  int max_tokens = 256;           // 0 gives no tokens and FinishReason::length
  std::vector<std::string> stop;  // text ends just before the earliest match
  int prefill_step_size = 2048;
  int max_kv_size = 0;  // 0: no limit
  CompileDecode compile_decode = CompileDecode::automatic;
  // Caches of CacheOptions::per_layer: for adapters that need them.
  bool per_layer = false;
  bool ignore_eos = false;  // for benchmarks: run on to max_tokens
  OnPrefill on_prefill;
  // Asked between prefill chunks and between tokens; true ends the call with
  // FinishReason::cancelled. For interrupts from another thread or a signal.
  std::function<bool()> is_cancelled;
};

// Throws invalid_request that names the option and the value.
void validate(const GenerateOptions& options, int vocab_size);

// One piece of the answer. The pieces concatenated are the result's text.
struct Delta {
  std::string text;             // valid UTF-8; may be empty
  std::vector<int32_t> tokens;  // new since the last delta, EOS not included
};

// Called for each token, and at the end if text was still held back. Return
// false to stop (FinishReason::cancelled).
using OnDelta = std::function<bool(const Delta&)>;

struct GenerateResult {
  std::string text;
  std::vector<int32_t> tokens;  // EOS not included
  int prompt_tokens = 0;
  int cached_tokens = 0;     // of the prompt, that the Sequence already held
  int generated_tokens = 0;  // sampled, EOS included
  FinishReason finish_reason = FinishReason::stop;
  std::string stop_sequence;        // the stop string that matched, if one did
  int64_t seed = 0;                 // the one used, given or fresh
  double prefill_seconds = 0;       // to the first token
  double decode_seconds = 0;        // from the first token to the last
  double first_decode_seconds = 0;  // the first decode step alone
  int compiled_steps = 0;           // decode steps that ran as a recorded graph
  // Why others did not although it was wanted; else empty.
  std::string compile_fallback;
  // Highest use of MLX memory since the program started or called
  // reset_peak_memory().
  size_t peak_memory_bytes = 0;

  // Of the tokens that were computed, so without cached_tokens.
  double prompt_tokens_per_second() const;
  double decode_tokens_per_second() const;
};

// Generates after `prompt` with fresh caches. Errors: invalid_request (empty
// prompt, ids outside the vocabulary, prompt over the context with both
// numbers, options out of range), internal (logits that are not finite).
// Exceptions of the callbacks pass through.
GenerateResult generate(
    const Pipeline& pipeline,
    const std::vector<int32_t>& prompt,
    const GenerateOptions& options,
    const OnDelta& on_delta = {});

// As above, keeping the state: `prompt` is the whole conversation so far, and
// what of it `sequence` already holds is not computed again. Afterwards the
// sequence holds prompt and answer; an error on the way leaves it empty, a
// refused request as it was. The result is the same as with fresh caches.
GenerateResult generate(
    const Pipeline& pipeline,
    const std::vector<int32_t>& prompt,
    Sequence& sequence,
    const GenerateOptions& options,
    const OnDelta& on_delta = {});

}  // namespace mlxx::generate
