#include "mlxx/generate/token_choices.h"

#include <algorithm>

#include "mlxx/base/environment.h"
#include "mlxx/core/device.h"

namespace mlxx::generate {
namespace {

// The finaliser of splitmix64: a bijection that spreads every input bit.
uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  x ^= x >> 31;
  return x;
}

}  // namespace

kernels::RandomKey random_key(const SampleKey& key, Draw draw) {
  uint64_t state = mix(static_cast<uint64_t>(key.seed) + 0x9e3779b97f4a7c15u);
  state = mix(state + static_cast<uint64_t>(draw));
  state = mix(state + static_cast<uint64_t>(key.step));
  return {static_cast<uint32_t>(state >> 32), static_cast<uint32_t>(state)};
}

void set_sampling(
    const SamplingOptions& options,
    const SampleKey& key,
    kernels::TokenChoice& choice) {
  choice.temperature = options.temperature;
  if (options.temperature == 0) {
    return;
  }
  choice.top_p = options.top_p;
  choice.min_p = options.min_p;
  choice.min_tokens_to_keep = options.min_tokens_to_keep;
  choice.top_k = options.top_k;
  choice.key = random_key(key, Draw::token);
  if (options.xtc_probability > 0 &&
      kernels::uniform_number(random_key(key, Draw::xtc), 0, 1) <=
          options.xtc_probability) {
    choice.xtc_threshold = options.xtc_threshold;
    if (options.xtc_special_tokens) {
      choice.xtc_special_tokens = *options.xtc_special_tokens;
    }
  }
}

void set_processors(
    const SamplingOptions& options,
    kernels::TokenChoice& choice) {
  for (const auto& [id, bias] : options.logit_bias) {
    choice.bias.emplace_back(id, std::clamp(bias, -100.0f, 100.0f));
  }
  if (options.repetition_penalty != 0) {
    choice.repetition = options.repetition_penalty;
  }
  choice.repetition_window = options.repetition_context_size;
  choice.presence = options.presence_penalty;
  choice.frequency = options.frequency_penalty;
  choice.penalty_window = options.penalty_context_size;
}

kernels::Selection sampling_kernels() {
  kernels::Selection selection;
  selection.fallback = environment("MLXX_KERNEL") == "fallback";
  auto sets = kernels::available_instruction_sets();
  auto wanted = environment("MLXX_CPU");
  auto found = std::ranges::find_if(sets, [&](kernels::InstructionSet set) {
    return wanted && kernels::to_string(set) == *wanted;
  });
  // Loading a model has complained about a set that is none.
  selection.instruction_set = found == sets.end() ? sets.back() : *found;
  return selection;
}

bool chooses_by_kernel(
    const kernels::Selection& selection,
    const mx::array& logits) {
  return !selection.fallback && backend() == Backend::cpu &&
      logits.dtype() == mx::float32;
}

const kernels::CudaPlugin* chooses_on_cuda(
    const kernels::Selection& selection,
    const mx::array& logits) {
  return selection.fallback || logits.dtype() != mx::float32 ||
          logits.ndim() != 2 || backend() != Backend::cuda
      ? nullptr
      : kernels::cuda_plugin();
}

std::optional<kernels::cuda::TokenSampling> cuda_sampling(
    const SamplingOptions& options,
    const SampleKey& key) {
  kernels::cuda::TokenSampling sampling;
  if (options.temperature == 0) {
    return sampling;
  }
  if (options.xtc_probability > 0) {
    return std::nullopt;
  }
  sampling.temperature = options.temperature;
  sampling.top_p = options.top_p;
  sampling.min_p = options.min_p;
  sampling.min_tokens_to_keep = options.min_tokens_to_keep;
  sampling.top_k = options.top_k;
  auto [first, second] = random_key(key, Draw::token);
  sampling.key[0] = first;
  sampling.key[1] = second;
  return sampling;
}

}  // namespace mlxx::generate
