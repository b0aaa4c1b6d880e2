#include "mlxx/capi/generate_request.h"

#include <nlohmann/json.hpp>

#include "mlxx/capi/argument_checks.h"
#include "mlxx/capi/chat_request.h"
#include "mlxx/capi/sized_struct.h"

namespace mlxx::capi {

namespace {

constexpr auto kInvalid = ErrorKind::invalid_request;
constexpr const char* kPlace = "mlxx_generate";

// Longer lists are a count that was never set.
constexpr size_t kMaxStops = 1 << 16;
constexpr size_t kMaxTokens = size_t{1} << 28;

void check_list(
    const void* items,
    size_t count,
    size_t most,
    const char* name) {
  if (count > most) {
    fail(kInvalid, name, "{} of them, the most are {}", count, most);
  }
  if (count > 0 && !items) {
    fail(kInvalid, name, "is NULL, its count {}", count);
  }
}

generate::SamplingOptions read_sampling(const mlxx_generate_options& given) {
  generate::SamplingOptions sampling;
  sampling.temperature = given.temperature;
  sampling.top_p = given.top_p;
  sampling.top_k = given.top_k;
  sampling.min_p = given.min_p;
  sampling.min_tokens_to_keep = given.min_tokens_to_keep;
  sampling.xtc_probability = given.xtc_probability;
  sampling.xtc_threshold = given.xtc_threshold;
  sampling.repetition_penalty = given.repetition_penalty;
  sampling.repetition_context_size = given.repetition_context_size;
  sampling.presence_penalty = given.presence_penalty;
  sampling.frequency_penalty = given.frequency_penalty;
  sampling.penalty_context_size = given.penalty_context_size;
  if (given.seed < -1) {
    fail(kInvalid, "seed", "must be -1 or more, got {}", given.seed);
  }
  if (given.seed >= 0) {
    sampling.seed = given.seed;
  }
  check_list(
      given.logit_bias_tokens,
      given.logit_bias_count,
      kMaxTokens,
      "logit_bias_tokens");
  check_list(
      given.logit_bias_values,
      given.logit_bias_count,
      kMaxTokens,
      "logit_bias_values");
  for (size_t i = 0; i < given.logit_bias_count; ++i) {
    const int32_t token = given.logit_bias_tokens[i];
    if (!sampling.logit_bias.emplace(token, given.logit_bias_values[i])
             .second) {
      fail(kInvalid, "logit_bias_tokens", "token {} is there twice", token);
    }
  }
  return sampling;
}

generate::CompileDecode read_compile_decode(int32_t value) {
  switch (value) {
    case 0:
      return generate::CompileDecode::automatic;
    case 1:
      return generate::CompileDecode::on;
    case 2:
      return generate::CompileDecode::off;
    default:
      fail(kInvalid, "compile_decode", "must be 0, 1 or 2, got {}", value);
  }
}

generate::GenerateOptions read_options(const mlxx_generate_options& given) {
  generate::GenerateOptions options;
  options.sampling = read_sampling(given);
  options.max_tokens = given.max_tokens;
  options.max_kv_size = given.max_kv_size;
  options.prefill_step_size = given.prefill_step_size;
  options.ignore_eos = read_flag(given.ignore_eos, "ignore_eos");
  check_list(given.stop, given.stop_count, kMaxStops, "stop");
  for (size_t i = 0; i < given.stop_count; ++i) {
    require_pointer(given.stop[i], "stop", "a text");
    options.stop.emplace_back(given.stop[i]);
  }
  options.compile_decode = read_compile_decode(given.compile_decode);
  return options;
}

std::vector<int32_t> encode_text(
    const generate::Pipeline& pipeline,
    const char* prompt,
    const char* system_prompt,
    bool is_raw) {
  const bool has_template =
      pipeline.chat_template || !pipeline.chat_template_error.empty();
  if (is_raw || !has_template) {
    if (system_prompt) {
      fail(
          kInvalid,
          "system_prompt",
          "there is no chat template to put it into");
    }
    return generate::encode_raw_prompt(pipeline, prompt);
  }
  require_utf8(prompt, "prompt");
  OrderedJson messages = OrderedJson::array();
  if (system_prompt) {
    require_utf8(system_prompt, "system_prompt");
    messages.push_back({{"role", "system"}, {"content", system_prompt}});
  }
  messages.push_back({{"role", "user"}, {"content", prompt}});
  return generate::encode_chat_prompt(pipeline, messages);
}

std::vector<int32_t> read_prompt(
    const generate::Pipeline& pipeline,
    const char* prompt,
    const mlxx_generate_options& given) {
  const int forms = (prompt ? 1 : 0) + (given.chat ? 1 : 0) +
      (given.tokens || given.token_count > 0 ? 1 : 0);
  if (forms == 0) {
    fail(kInvalid, kPlace, "prompt is NULL, and so are chat and tokens");
  }
  if (forms > 1) {
    fail(kInvalid, kPlace, "give one of prompt, chat and tokens");
  }
  const bool is_raw = read_flag(given.raw, "raw");
  if (prompt) {
    return encode_text(pipeline, prompt, given.system_prompt, is_raw);
  }
  if (given.system_prompt) {
    fail(kInvalid, "system_prompt", "goes with a prompt that is a text only");
  }
  if (is_raw) {
    fail(kInvalid, "raw", "goes with a prompt that is a text only");
  }
  if (given.chat) {
    return encode_chat(pipeline, given.chat);
  }
  check_list(given.tokens, given.token_count, kMaxTokens, "tokens");
  return {given.tokens, given.tokens + given.token_count};
}

}  // namespace

GenerateRequest read_request(
    const OpenModel& model,
    const char* prompt,
    const mlxx_generate_options* options) {
  const auto given = read_struct<mlxx_generate_options>(
      options,
      MLXX_GENERATE_OPTIONS_INIT,
      "mlxx_generate_options");
  GenerateRequest request;
  request.options = read_options(given);
  // Before the prompt: it may be long.
  generate::validate(request.options, model.info().vocab_size);
  request.prompt = read_prompt(model.pipeline(), prompt, given);
  if (given.cancel) {
    request.cancel = open_cancels().get(given.cancel, kPlace)->get_token();
  }
  return request;
}

}  // namespace mlxx::capi
