#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/mlxx/kernel_options.h"
#include "mlxx/base/json.h"
#include "mlxx/generate/generate.h"
#include "mlxx/hub/resolve.h"

namespace CLI {
class App;
}

namespace mlxx::apps {

// What generate and chat take alike, as it stands on the command line.
// Names are mlx-lm's.
struct AnswerOptions {
  std::string model = hub::kDefaultModel;
  std::string adapter_path;  // a folder; "": none
  std::optional<std::string> system_prompt;
  std::optional<std::string> chat_template;  // a file, or the template itself
  std::string chat_template_config = "{}";   // variables for the template
  std::vector<std::string> extra_eos_tokens;
  std::string logit_bias = "{}";  // token id -> number
  KernelOptions kernels;
  std::string compile_decode = "auto";
  generate::GenerateOptions generate;

  // mlx-lm's server gives 512 tokens too; its generate gives 100, which cuts
  // most answers short.
  static constexpr int kDefaultMaxTokens = 512;

  AnswerOptions() {
    generate.max_tokens = kDefaultMaxTokens;
  }
};

void add_answer_options(CLI::App& verb, AnswerOptions& options);

// Refuses what no model could honour, before one is loaded, and fills
// options.generate with what needs parsing. invalid_request names the option.
void finish_answer_options(AnswerOptions& options);

// --chat-template: the content of the file of that name, or the text itself if
// it is a template. not_found if it is neither.
std::string read_chat_template(const std::string& value);

// What `mlxx generate` takes besides.
struct GenerateCommandOptions {
  AnswerOptions answer;
  std::optional<std::string> positional_prompt;
  std::optional<std::string> prompt;  // "-" is stdin
  std::optional<std::string> prefill_response;
  bool raw = false;
  bool quiet = false;
  bool json = false;
};

void add_generate_options(CLI::App& verb, GenerateCommandOptions& options);

// finish_answer_options() and the rules between the options of generate.
void finish_generate_options(GenerateCommandOptions& options);

// The prompt's text, read from stdin if it is "-". Valid UTF-8, or
// invalid_request with the place of the first bad byte.
std::string read_prompt(const GenerateCommandOptions& options);

// `text`, or invalid_request that names `place` and the first bad byte.
const std::string& require_utf8(
    const std::string& place,
    const std::string& text);

// The messages of a single question.
OrderedJson prompt_messages(
    const GenerateCommandOptions& options,
    const std::string& prompt);

}  // namespace mlxx::apps
