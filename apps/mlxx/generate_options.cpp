#include "apps/mlxx/generate_options.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/mlxx/model_adapter.h"
#include "mlxx/base/error.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/base/utf8.h"

namespace mlxx::apps {

namespace {

constexpr auto kInvalid = ErrorKind::invalid_request;
constexpr size_t kMaxPromptBytes = size_t{64} << 20;
constexpr size_t kMaxTemplateBytes = size_t{4} << 20;

// CLI11 takes an empty text for the number 0.
std::string require_number(const std::string& value) {
  return value.empty() ? "needs a number" : "";
}

// An option that may be given several times, with one value each.
template <typename T>
CLI::Option* add_repeated_option(
    CLI::App& verb,
    const std::string& name,
    std::vector<T>& values,
    const std::string& description) {
  return verb.add_option(name, values, description)->allow_extra_args(false);
}

void add_sampling_options(
    CLI::App& verb,
    AnswerOptions& options,
    const std::string& group) {
  auto& sampling = options.generate.sampling;
  auto add = [&](const char* name,
                 auto& value,
                 const char* type,
                 const char* description) {
    auto* option = verb.add_option(name, value, description)
                       ->type_name(type)
                       ->group(group);
    if (type != std::string_view("JSON")) {
      option->check(require_number);
    }
    return option;
  };
  add("--temp",
      sampling.temperature,
      "T",
      "Temperature; 0 always takes the likeliest token")
      ->capture_default_str();
  add("--top-p",
      sampling.top_p,
      "P",
      "Keep the likeliest tokens that together have this probability; 1 is off")
      ->capture_default_str();
  add("--top-k", sampling.top_k, "K", "Keep the K likeliest tokens; 0 is off")
      ->capture_default_str();
  add("--min-p",
      sampling.min_p,
      "P",
      "Keep tokens of at least P times the likeliest one's probability; 0 is "
      "off")
      ->capture_default_str();
  add("--min-tokens-to-keep",
      sampling.min_tokens_to_keep,
      "N",
      "Tokens that --min-p always keeps")
      ->capture_default_str();
  add("--xtc-probability",
      sampling.xtc_probability,
      "P",
      "How often XTC drops the likeliest tokens; 0 is off")
      ->capture_default_str();
  add("--xtc-threshold",
      sampling.xtc_threshold,
      "P",
      "Probability from which XTC may drop a token, at most 0.5")
      ->capture_default_str();
  add("--seed",
      sampling.seed,
      "N",
      "Random seed: the same one gives the same answer [default: a new one]");
  add("--repetition-penalty",
      sampling.repetition_penalty,
      "F",
      "Divide the scores of tokens that came before by F; 0 or 1 is off")
      ->capture_default_str();
  add("--repetition-context-size",
      sampling.repetition_context_size,
      "N",
      "Newest tokens that --repetition-penalty looks at; 0 is all")
      ->capture_default_str();
  add("--presence-penalty",
      sampling.presence_penalty,
      "F",
      "Take F from the scores of tokens that came before, -2 to 2")
      ->capture_default_str();
  add("--frequency-penalty",
      sampling.frequency_penalty,
      "F",
      "Take F per occurrence from the scores of tokens that came before, -2 to "
      "2")
      ->capture_default_str();
  add("--penalty-context-size",
      sampling.penalty_context_size,
      "N",
      "Newest tokens that the presence and frequency penalties look at; 0 is "
      "all")
      ->capture_default_str();
  add("--logit-bias",
      options.logit_bias,
      "JSON",
      "Numbers to add to the scores of token ids, such as '{\"198\": -100}'");
}

std::map<int, float> parse_logit_bias(const std::string& text) {
  constexpr const char* kPlace = "--logit-bias";
  Json json;
  try {
    json = parse_json(text, kPlace);
  } catch (const Error& error) {
    throw Error(kInvalid, error.what());
  }
  if (!json.is_object()) {
    fail(kInvalid, kPlace, "must be a JSON object, got {}", text);
  }
  std::map<int, float> bias;
  for (const auto& [key, value] : json.items()) {
    int id = 0;
    auto [end, error] =
        std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) {
      fail(kInvalid, kPlace, "\"{}\" is not a token id", key);
    }
    if (!value.is_number()) {
      fail(kInvalid, kPlace, "the bias of token {} is not a number", id);
    }
    bias[id] = value.get<float>();
  }
  return bias;
}

void check_template_config(const std::string& text) {
  constexpr const char* kPlace = "--chat-template-config";
  OrderedJson json;
  try {
    json = parse_ordered_json(text, kPlace);
  } catch (const Error& error) {
    throw Error(kInvalid, error.what());
  }
  if (!json.is_object()) {
    fail(kInvalid, kPlace, "must be a JSON object, got {}", text);
  }
}

std::string read_stdin() {
  std::string text;
  char buffer[1 << 16];
  while (true) {
    ssize_t count = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      fail(
          kInvalid,
          "stdin",
          "the prompt cannot be read: {}",
          std::strerror(errno));
    }
    if (count == 0) {
      return text;
    }
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > kMaxPromptBytes) {
      fail(kInvalid, "stdin", "the prompt is over {} bytes", kMaxPromptBytes);
    }
  }
}

}  // namespace

const std::string& require_utf8(
    const std::string& place,
    const std::string& text) {
  if (is_valid_utf8(text)) {
    return text;
  }
  size_t good = 0;
  size_t length = 1;
  while (length <= 4 && good + length <= text.size()) {
    if (is_valid_utf8(std::string_view(text).substr(good, length))) {
      good += length;
      length = 1;
    } else {
      ++length;
    }
  }
  fail(
      kInvalid,
      place,
      "is not valid UTF-8, found byte 0x{:02x} at offset {}",
      static_cast<unsigned char>(text[good]),
      good);
}

std::string read_chat_template(const std::string& value) {
  constexpr const char* kPlace = "--chat-template";
  std::error_code ignored;
  if (std::filesystem::is_regular_file(value, ignored)) {
    return require_utf8(value, read_file(value, kMaxTemplateBytes));
  }
  if (value.find('{') == std::string::npos) {
    fail(
        ErrorKind::not_found,
        kPlace,
        "there is no file {}, and it is no template either",
        value);
  }
  return value;
}

void add_answer_options(CLI::App& verb, AnswerOptions& options) {
  verb.add_option(
          "-m,--model",
          options.model,
          "A catalogue name, a folder in Hugging Face layout, a .gguf file, or "
          "org/repo[@rev] that was pulled")
      ->type_name("MODEL")
      ->capture_default_str()
      ->group("Model");
  add_adapter_option(verb, options.adapter_path)->group("Model");
  add_repeated_option(
      verb,
      "--extra-eos-token",
      options.extra_eos_tokens,
      "One more token that ends the answer")
      ->type_name("TOKEN")
      ->group("Model");
  verb.add_option(
          "--max-kv-size",
          options.generate.max_kv_size,
          "Keep at most N tokens per layer and forget the oldest; 0 keeps all")
      ->type_name("N")
      ->check(require_number)
      ->capture_default_str()
      ->group("Model");
  verb.add_option(
          "--prefill-step-size",
          options.generate.prefill_step_size,
          "Prompt tokens that are computed at a time; fewer take less memory")
      ->type_name("N")
      ->check(require_number)
      ->capture_default_str()
      ->group("Model");
  verb.add_option(
          "--compile-decode",
          options.compile_decode,
          "Record the step of one token once and replay it: auto (where that "
          "is faster), on or off")
      ->type_name("WHEN")
      ->capture_default_str()
      ->group("Model");

  add_kernel_options(verb, options.kernels);

  verb.add_option(
          "--system-prompt",
          options.system_prompt,
          "The system message [default: the chat template's own]")
      ->type_name("TEXT")
      ->group("Prompt");
  verb.add_option(
          "--chat-template",
          options.chat_template,
          "A Jinja template, or a file with one [default: the model's]")
      ->type_name("TEXT|FILE")
      ->group("Prompt");
  verb.add_option(
          "--chat-template-config",
          options.chat_template_config,
          "Variables for the chat template, such as "
          "'{\"enable_thinking\": false}'")
      ->type_name("JSON")
      ->group("Prompt");

  verb.add_option(
          "--max-tokens",
          options.generate.max_tokens,
          "Tokens of the answer at most")
      ->type_name("N")
      ->check(require_number)
      ->capture_default_str()
      ->group("Answer");
  add_repeated_option(
      verb,
      "--stop",
      options.generate.stop,
      "End the answer before this text")
      ->type_name("TEXT")
      ->group("Answer");
  add_sampling_options(verb, options, "Sampling");
}

void finish_answer_options(AnswerOptions& options) {
  require_utf8("--model", options.model);
  if (options.system_prompt) {
    require_utf8("--system-prompt", *options.system_prompt);
  }
  require_utf8("--adapter-path", options.adapter_path);
  for (const std::string& token : options.extra_eos_tokens) {
    require_utf8("--extra-eos-token", token);
  }
  for (const std::string& stop : options.generate.stop) {
    require_utf8("--stop", stop);
  }
  check_template_config(options.chat_template_config);
  options.generate.sampling.logit_bias = parse_logit_bias(options.logit_bias);
  if (options.chat_template) {
    options.chat_template = read_chat_template(*options.chat_template);
  }
  options.generate.compile_decode =
      generate::compile_decode_named(options.compile_decode);
  generate::validate(options.generate, /*vocab_size=*/0);
}

void add_generate_options(CLI::App& verb, GenerateCommandOptions& options) {
  verb.add_option(
      "PROMPT",
      options.positional_prompt,
      "What to answer, taken as it is; - reads it from stdin");
  add_answer_options(verb, options.answer);
  verb.add_option(
          "-p,--prompt",
          options.prompt,
          "The prompt, instead of PROMPT; - reads it from stdin")
      ->type_name("TEXT")
      ->group("Prompt");
  verb.add_option(
          "--prefill-response",
          options.prefill_response,
          "The start of the answer, which the model goes on from")
      ->type_name("TEXT")
      ->group("Prompt");
  verb.add_flag(
          "--raw,--ignore-chat-template",
          options.raw,
          "Continue the prompt itself, without the chat template")
      ->group("Prompt");
  verb.add_flag("--quiet,-q", options.quiet, "No summary on stderr")
      ->group("Answer");
  verb.add_flag(
          "--json",
          options.json,
          "Print one JSON object at the end: text, token counts, timings")
      ->group("Answer");
}

void finish_generate_options(GenerateCommandOptions& options) {
  if (options.positional_prompt && options.prompt) {
    fail(kInvalid, "--prompt", "the prompt is given twice: PROMPT and -p");
  }
  if (!options.positional_prompt && !options.prompt) {
    fail(
        kInvalid,
        "prompt",
        "there is none: give a PROMPT, or -p - to read it from stdin");
  }
  const std::pair<const char*, bool> kNeedTemplate[] = {
      {"--system-prompt", options.answer.system_prompt.has_value()},
      {"--prefill-response", options.prefill_response.has_value()},
      {"--chat-template", options.answer.chat_template.has_value()},
      {"--chat-template-config", options.answer.chat_template_config != "{}"}};
  for (const auto& [name, given] : kNeedTemplate) {
    if (options.raw && given) {
      fail(kInvalid, name, "needs the chat template, which --raw leaves out");
    }
  }
  if (options.prefill_response) {
    require_utf8("--prefill-response", *options.prefill_response);
  }
  finish_answer_options(options.answer);
}

std::string read_prompt(const GenerateCommandOptions& options) {
  const std::string& given =
      options.prompt ? *options.prompt : *options.positional_prompt;
  if (given == "-") {
    return require_utf8("stdin", read_stdin());
  }
  return require_utf8("prompt", given);
}

OrderedJson prompt_messages(
    const GenerateCommandOptions& options,
    const std::string& prompt) {
  auto message = [](const char* role, const std::string& content) {
    return OrderedJson{{"role", role}, {"content", content}};
  };
  OrderedJson messages = OrderedJson::array();
  if (options.answer.system_prompt) {
    messages.push_back(message("system", *options.answer.system_prompt));
  }
  messages.push_back(message("user", prompt));
  if (options.prefill_response) {
    messages.push_back(message("assistant", *options.prefill_response));
  }
  return messages;
}

}  // namespace mlxx::apps
