#include <chrono>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/mlxx/commands.h"
#include "apps/mlxx/console.h"
#include "apps/mlxx/exit_codes.h"
#include "apps/mlxx/generate_options.h"
#include "apps/mlxx/generate_report.h"
#include "apps/mlxx/interrupt.h"
#include "apps/mlxx/model_adapter.h"
#include "apps/mlxx/model_loading.h"
#include "mlxx/base/error.h"

namespace mlxx::apps {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<int32_t> encode_prompt(
    const generate::Pipeline& pipeline,
    const GenerateCommandOptions& options,
    const std::string& prompt) {
  bool has_template =
      pipeline.chat_template || !pipeline.chat_template_error.empty();
  // As in mlx-lm: a model without a chat template continues the prompt.
  if (options.raw || !has_template) {
    if (!options.raw &&
        (options.answer.system_prompt || options.prefill_response)) {
      fail(
          ErrorKind::invalid_request,
          options.prefill_response ? "--prefill-response" : "--system-prompt",
          "the model has no chat template to put it into");
    }
    return generate::encode_raw_prompt(pipeline, prompt);
  }
  text::RenderOptions render;
  render.extra_json = options.answer.chat_template_config;
  render.continue_final_message = options.prefill_response.has_value();
  return generate::encode_chat_prompt(
      pipeline,
      prompt_messages(options, prompt),
      render);
}

int run(GenerateCommandOptions options, Clock::time_point process_start) {
  finish_generate_options(options);
  std::string prompt = read_prompt(options);
  AnswerTimings timings;
  timings.start = seconds_since(process_start);

  InterruptScope interrupt;
  auto load_start = Clock::now();
  auto pipeline = load_for_answers(options.answer, interrupt);
  timings.load = seconds_since(load_start);
  timings.tokenizer = pipeline.tokenizer_seconds;
  timings.weights = pipeline.weights_seconds;

  ModelAdapter adapter(
      pipeline.model,
      options.answer.adapter_path,
      options.answer.kernels.selection());
  auto adapter_rows = adapter.rows(1);
  nn::AdapterScope scope(adapter_rows.get());

  auto prompt_start = Clock::now();
  auto tokens = encode_prompt(pipeline, options, prompt);
  timings.prompt = seconds_since(prompt_start);

  auto generate_options = options.answer.generate;
  generate_options.per_layer = adapter.per_layer();
  generate_options.is_cancelled = [&] { return interrupt.is_interrupted(); };
  bool ends_in_newline = false;
  auto on_delta = [&](const generate::Delta& delta) {
    if (timings.first_token == 0) {
      timings.first_token = seconds_since(process_start);
    }
    if (!options.json && !delta.text.empty()) {
      print(for_display(Stream::out, delta.text));
      ends_in_newline = delta.text.back() == '\n';
    }
    return true;
  };
  auto result =
      generate::generate(pipeline, tokens, generate_options, on_delta);
  timings.total = seconds_since(process_start);

  if (options.json) {
    auto report = answer_json(options.answer.model, result, timings);
    print(report.dump(2) + "\n");
  } else if (!ends_in_newline) {
    print("\n");
  }
  if (!options.quiet && !options.json) {
    print_error(
        colored(
            Stream::err,
            Color::dim,
            answer_summary(result, generate_options.max_tokens)) +
        "\n");
  }
  return result.finish_reason == generate::FinishReason::cancelled
      ? kExitInterrupted
      : kExitSuccess;
}

}  // namespace

void add_generate_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<GenerateCommandOptions>();
  CLI::App* verb =
      app.add_subcommand("generate", "Answer one prompt and print the answer");
  add_generate_options(*verb, *options);
  verb->footer(
      "Examples:\n"
      "  mlxx generate \"What is the capital of France?\"\n"
      "  mlxx generate -m org/repo --temp 0.7 --seed 1 \"Tell me a story\"\n"
      "  mlxx generate --json -p - < question.txt");
  on_run(verb, context, [options, &context] {
    return run(*options, context.process_start);
  });
}

}  // namespace mlxx::apps
