#include <memory>

#include <CLI/CLI.hpp>

#include "apps/mlxx/commands.h"
#include "apps/mlxx/exit_codes.h"
#include "apps/mlxx/kernel_options.h"
#include "apps/mlxx/text_inputs.h"
#include "apps/mlxx/vector_output.h"
#include "mlxx/base/error.h"
#include "mlxx/embed/embedding_model.h"
#include "mlxx/hub/resolve.h"

namespace mlxx::apps {
namespace {

struct EmbedCommandOptions {
  std::string model;
  TextInputOptions texts;
  embed::EmbedOptions embed;
  std::string format;
  std::string output;
  KernelOptions kernels;
};

int run(const EmbedCommandOptions& options) {
  VectorFormat format = choose_vector_format(options.format, options.output);
  auto texts = read_texts(options.texts);
  models::LoadOptions load_options;
  load_options.kernels = options.kernels.selection();
  auto model = embed::EmbeddingModel::load(
      hub::resolve_model(options.model),
      load_options);
  auto embeddings = model->embed(texts, options.embed);
  write_vectors(
      embeddings.vectors,
      format,
      options.output,
      options.model,
      embeddings.tokens);
  return kExitSuccess;
}

}  // namespace

void add_embed_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<EmbedCommandOptions>();
  CLI::App* verb =
      app.add_subcommand("embed", "Turn texts into vectors of numbers");
  verb->add_option("-m,--model", options->model, "Embedding model")->required();
  add_text_input_options(*verb, options->texts, "text");
  auto* normalize = verb->add_flag_callback(
      "--normalize",
      [options] { options->embed.normalize = true; },
      "Scale vectors to length 1 (default: as the model says)");
  verb->add_flag_callback(
          "--no-normalize",
          [options] { options->embed.normalize = false; },
          "Leave vectors as they are")
      ->excludes(normalize);
  auto* instruction = verb->add_option(
      "--instruction",
      options->embed.prompt,
      "Text that goes before every text, such as \"query: \"");
  verb->add_option(
          "--prompt-name",
          options->embed.prompt_name,
          "One of the model's own such texts, such as query")
      ->excludes(instruction);
  verb->add_option(
          "--max-tokens",
          options->embed.max_tokens,
          "Cut texts off here (default: what the model takes)")
      ->check(CLI::Range(1, 1 << 24));
  verb->add_option(
          "--dimensions",
          options->embed.dimensions,
          "Only the first N numbers of each vector")
      ->check(CLI::Range(1, 1 << 20));
  verb->add_option(
      "--format",
      options->format,
      "json (as OpenAI's interface has it), raw (float32), npy or safetensors "
      "(default: by the file's name, else json)");
  verb->add_option(
          "-o,--output",
          options->output,
          "File to write (default: standard output)")
      ->type_name("FILE");
  add_kernel_options(*verb, options->kernels);
  verb->footer(
      "Examples:\n"
      "  mlxx embed -m org/repo \"A text\" \"Another text\"\n"
      "  mlxx embed -m org/repo --prompt-name query -f questions.txt -o q.npy\n"
      "  mlxx embed -m ./folder --jsonl --field body -f - < pages.jsonl");
  on_run(verb, context, [options] { return run(*options); });
}

}  // namespace mlxx::apps
