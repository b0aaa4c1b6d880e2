#include "apps/mlxx/generate_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace mlxx::apps {

std::string format_bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB", "PB"};
  if (bytes < 1000) {
    return fmt::format("{} B", bytes);
  }
  double value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return fmt::format(
      "{:.{}f} {}",
      value,
      value < 9.995       ? 2
          : value < 99.95 ? 1
                          : 0,
      kUnits[unit]);
}

std::string answer_summary(
    const generate::GenerateResult& result,
    int max_tokens) {
  std::string cached;
  if (result.cached_tokens > 0) {
    cached = fmt::format(" ({} kept)", result.cached_tokens);
  }
  std::string end;
  if (result.finish_reason == generate::FinishReason::cancelled) {
    end = ", interrupted";
  } else if (result.finish_reason == generate::FinishReason::length) {
    end = result.generated_tokens >= max_tokens
        ? fmt::format(", cut off by --max-tokens {}", max_tokens)
        : std::string(", cut off: the context is full");
  }
  return fmt::format(
      "prompt {} tokens{} {:.1f} tok/s, answer {} tokens {:.1f} tok/s, peak "
      "memory {}{}",
      result.prompt_tokens,
      cached,
      result.prompt_tokens_per_second(),
      result.generated_tokens,
      result.decode_tokens_per_second(),
      format_bytes(result.peak_memory_bytes),
      end);
}

OrderedJson answer_json(
    const std::string& model,
    const generate::GenerateResult& result,
    const AnswerTimings& timings) {
  OrderedJson stop = nullptr;
  if (!result.stop_sequence.empty()) {
    stop = result.stop_sequence;
  }
  OrderedJson fallback = nullptr;
  if (!result.compile_fallback.empty()) {
    fallback = result.compile_fallback;
  }
  return OrderedJson{
      {"model", model},
      {"text", result.text},
      {"finish_reason", generate::to_string(result.finish_reason)},
      {"stop_sequence", stop},
      {"prompt_tokens", result.prompt_tokens},
      {"cached_tokens", result.cached_tokens},
      {"generated_tokens", result.generated_tokens},
      {"seed", result.seed},
      {"prompt_tok_s", result.prompt_tokens_per_second()},
      {"decode_tok_s", result.decode_tokens_per_second()},
      {"compiled_steps", result.compiled_steps},
      {"compile_fallback", fallback},
      {"peak_memory_bytes", result.peak_memory_bytes},
      {"seconds",
       {{"start", timings.start},
        {"tokenizer", timings.tokenizer},
        {"weights", timings.weights},
        {"load", timings.load},
        {"prompt", timings.prompt},
        {"prefill", result.prefill_seconds},
        {"decode", result.decode_seconds},
        {"first_token", timings.first_token},
        {"total", timings.total}}}};
}

}  // namespace mlxx::apps
