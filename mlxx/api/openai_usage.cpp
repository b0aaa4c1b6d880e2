#include "mlxx/api/openai_usage.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace mlxx::api {

void UsageSum::add(size_t request, const engine::Usage& usage) {
  Prompt& prompt = prompts_[request];
  prompt.tokens = usage.prompt_tokens;
  prompt.cached = std::max(prompt.cached, usage.cached_tokens);
  completion_ += usage.completion_tokens;
  reasoning_ += usage.reasoning_tokens;
}

OrderedJson UsageSum::json() const {
  int64_t tokens = 0;
  int64_t cached = 0;
  for (const Prompt& prompt : prompts_) {
    tokens += prompt.tokens;
    cached += prompt.cached;
  }
  return {
      {"prompt_tokens", tokens},
      {"completion_tokens", completion_},
      {"total_tokens", tokens + completion_},
      {"prompt_tokens_details",
       {{"cached_tokens", cached}, {"audio_tokens", 0}}},
      {"completion_tokens_details",
       {{"reasoning_tokens", reasoning_},
        {"audio_tokens", 0},
        {"accepted_prediction_tokens", 0},
        {"rejected_prediction_tokens", 0}}}};
}

std::string_view system_fingerprint() {
  return "mlxx-" MLXX_VERSION;
}

}  // namespace mlxx::api
