#include "mlxx/generate/generate.h"

#include <algorithm>
#include <chrono>

#include "mlxx/base/error.h"
#include "mlxx/core/memory.h"
#include "mlxx/core/wired_limit.h"
#include "mlxx/generate/answer_text.h"
#include "mlxx/generate/compiled_step.h"
#include "mlxx/generate/prefill.h"
#include "mlxx/generate/token_stream.h"

namespace mlxx::generate {

namespace {

constexpr auto kInvalid = ErrorKind::invalid_request;

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

void check_request(
    const Pipeline& pipeline,
    const std::vector<int32_t>& prompt,
    const GenerateOptions& options) {
  const int vocab_size = pipeline.model->summary().vocab_size;
  const int context_length = pipeline.context_length;
  validate(options, vocab_size);
  if (prompt.empty()) {
    fail(kInvalid, "prompt", "has no tokens");
  }
  if (context_length > 0 &&
      prompt.size() > static_cast<size_t>(context_length)) {
    fail(
        kInvalid,
        "context_length_exceeded",
        "the prompt has {} tokens, the model's context holds {}",
        prompt.size(),
        context_length);
  }
  for (int32_t id : prompt) {
    if (id < 0 || id >= vocab_size) {
      fail(
          kInvalid,
          "prompt",
          "token id {} is outside the model's vocabulary of {}",
          id,
          vocab_size);
    }
  }
}

// The newline and the EOS tokens, which mlx-lm's programs keep from xtc.
std::vector<int32_t> default_xtc_special_tokens(
    const Pipeline& pipeline,
    int vocab_size) {
  std::vector<int32_t> ids = pipeline.tokenizer->encode("\n");
  ids.insert(ids.end(), pipeline.eos_ids.begin(), pipeline.eos_ids.end());
  std::erase_if(ids, [&](int32_t id) { return id < 0 || id >= vocab_size; });
  return ids;
}

// Measures the phases as tokens arrive.
class PhaseClock {
 public:
  void token(GenerateResult& result) {
    auto now = Clock::now();
    if (++result.generated_tokens == 1) {
      result.prefill_seconds = seconds_between(start_, now);
      first_ = now;
      return;
    }
    result.decode_seconds = seconds_between(first_, now);
    if (result.generated_tokens == 2) {
      result.first_decode_seconds = result.decode_seconds;
    }
  }

 private:
  Clock::time_point start_ = Clock::now();
  Clock::time_point first_;
};

// The loop from the first token on: fills in all of `result` but what is known
// before it.
void decode(
    const Pipeline& pipeline,
    TokenStream& stream,
    const GenerateOptions& options,
    const OnDelta& on_delta,
    PhaseClock& clock,
    GenerateResult& result) {
  AnswerText answer(pipeline.tokenizer, options.stop);
  bool refused = false;
  auto deliver = [&](std::string text, std::vector<int32_t> tokens) {
    result.text += text;
    result.tokens.insert(result.tokens.end(), tokens.begin(), tokens.end());
    if (on_delta && !on_delta({std::move(text), std::move(tokens)})) {
      refused = true;
    }
  };

  result.finish_reason = FinishReason::length;
  while (!refused && !answer.stopped()) {
    if (options.is_cancelled && options.is_cancelled()) {
      result.finish_reason = FinishReason::cancelled;
      break;
    }
    auto token = stream.next();
    if (!token) {
      break;
    }
    clock.token(result);
    if (result.generated_tokens == 1 && options.on_prefill) {
      options.on_prefill(result.prompt_tokens, result.prompt_tokens);
    }
    if (!options.ignore_eos && pipeline.eos_ids.contains(*token)) {
      result.finish_reason = FinishReason::stop;
      break;
    }
    deliver(answer.step(*token), {*token});
  }
  if (!refused) {
    std::string rest = answer.flush();
    if (!rest.empty()) {
      deliver(std::move(rest), {});
    }
  }
  if (answer.stopped()) {
    result.finish_reason = FinishReason::stop;
    result.stop_sequence = answer.stop();
  } else if (refused) {
    result.finish_reason = FinishReason::cancelled;
  }
}

bool wants_compiled(CompileDecode choice) {
  // Nowhere measured is it faster, see docs/compiled-decoding.md.
  return choice == CompileDecode::on;
}

// `options` and `prompt` have passed check_request().
GenerateResult run(
    const Pipeline& pipeline,
    const std::vector<int32_t>& prompt,
    Sequence& sequence,
    const GenerateOptions& options,
    const OnDelta& on_delta) {
  GenerateResult result;
  result.prompt_tokens = static_cast<int>(prompt.size());
  result.seed = resolve_seed(options.sampling);
  TokenStreamOptions stream_options{
      options.sampling,
      result.seed,
      options.max_tokens};
  if (pipeline.context_length > 0) {
    stream_options.max_tokens = std::min(
        options.max_tokens,
        pipeline.context_length - result.prompt_tokens);
  }
  if (stream_options.max_tokens == 0) {
    result.finish_reason = FinishReason::length;
    return result;
  }
  if (options.sampling.xtc_probability > 0 &&
      !options.sampling.xtc_special_tokens) {
    stream_options.sampling.xtc_special_tokens = default_xtc_special_tokens(
        pipeline,
        pipeline.model->summary().vocab_size);
  }

  PhaseClock clock;
  bool compiled = wants_compiled(options.compile_decode);
  ScopedWiredLimit wired(pipeline.model->summary().weight_bytes);
  result.cached_tokens = reuse_prefix(
      sequence,
      prompt,
      *pipeline.model,
      {.max_kv_size = options.max_kv_size,
       .per_layer = compiled || options.per_layer});
  PrefillOptions prefill_options{
      options.prefill_step_size,
      options.on_prefill,
      options.is_cancelled};
  if (prefill(*pipeline.model, prompt, sequence, prefill_options)) {
    std::optional<CompiledStep> step;
    if (compiled) {
      stream_options.step = &step.emplace(*pipeline.model);
    }
    TokenStream stream(*pipeline.model, prompt, sequence, stream_options);
    decode(pipeline, stream, options, on_delta, clock, result);
    if (step) {
      result.compiled_steps = step->compiled_steps();
      result.compile_fallback = step->fallback();
    }
  } else {
    result.finish_reason = FinishReason::cancelled;
  }
  result.peak_memory_bytes = memory_use().peak;
  return result;
}

}  // namespace

GenerateResult generate(
    const Pipeline& pipeline,
    const std::vector<int32_t>& prompt,
    const GenerateOptions& options,
    const OnDelta& on_delta) {
  check_request(pipeline, prompt, options);
  Sequence sequence;
  return run(pipeline, prompt, sequence, options, on_delta);
}

GenerateResult generate(
    const Pipeline& pipeline,
    const std::vector<int32_t>& prompt,
    Sequence& sequence,
    const GenerateOptions& options,
    const OnDelta& on_delta) {
  check_request(pipeline, prompt, options);
  try {
    return run(pipeline, prompt, sequence, options, on_delta);
  } catch (...) {
    // An error in mid-step leaves layers that disagree with the tokens.
    sequence.clear();
    throw;
  }
}

}  // namespace mlxx::generate
