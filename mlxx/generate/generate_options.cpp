#include "mlxx/base/error.h"
#include "mlxx/base/utf8.h"
#include "mlxx/generate/generate.h"

namespace mlxx::generate {

namespace {

constexpr auto kInvalid = ErrorKind::invalid_request;

void require_at_least(const char* name, int value, int min) {
  if (value < min) {
    fail(kInvalid, name, "must be at least {}, got {}", min, value);
  }
}

}  // namespace

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
  }
  return "unknown";
}

CompileDecode compile_decode_named(std::string_view name) {
  if (name == "auto") {
    return CompileDecode::automatic;
  }
  if (name == "on") {
    return CompileDecode::on;
  }
  if (name == "off") {
    return CompileDecode::off;
  }
  fail(
      kInvalid,
      "compile_decode",
      "must be 'auto', 'on' or 'off', found '{}'",
      name);
}

void validate(const GenerateOptions& options, int vocab_size) {
  validate(options.sampling, vocab_size);
  require_at_least("max_tokens", options.max_tokens, 0);
  require_at_least("prefill_step_size", options.prefill_step_size, 1);
  require_at_least("max_kv_size", options.max_kv_size, 0);
  for (const std::string& stop : options.stop) {
    if (stop.empty()) {
      fail(kInvalid, "stop", "a stop string may not be empty");
    }
    if (!is_valid_utf8(stop)) {
      fail(kInvalid, "stop", "\"{}\" is not valid UTF-8", stop);
    }
  }
}

double GenerateResult::prompt_tokens_per_second() const {
  return prefill_seconds > 0 ? (prompt_tokens - cached_tokens) / prefill_seconds
                             : 0;
}

double GenerateResult::decode_tokens_per_second() const {
  return decode_seconds > 0 ? (generated_tokens - 1) / decode_seconds : 0;
}

}  // namespace mlxx::generate
