#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/mlxx/commands.h"
#include "apps/mlxx/console.h"
#include "apps/mlxx/eval_report.h"
#include "apps/mlxx/exit_codes.h"
#include "apps/mlxx/interrupt.h"
#include "apps/mlxx/kernel_options.h"
#include "apps/mlxx/model_adapter.h"
#include "mlxx/base/error.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/eval/evaluation_rows.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/hub/resolve.h"

namespace mlxx::apps {
namespace {

struct EvalCommandOptions {
  std::string model = hub::kDefaultModel;
  std::string adapter;
  std::string file;
  std::string chat_template;
  eval::WindowOptions windows;
  std::string reference;
  std::string reference_adapter;
  int max_tokens = 0;
  bool apply_chat_template = false;
  int batch_size = 8;
  bool json = false;
  KernelOptions kernels;
};

using Clock = std::chrono::steady_clock;

// A model that is judged, with its adapter.
struct Judged {
  generate::Pipeline pipeline;
  std::unique_ptr<ModelAdapter> adapter;

  eval::Subject subject() const {
    eval::Subject out{*pipeline.model};
    if (adapter->is_mounted()) {
      out.adapters = [this](int rows) { return adapter->rows(rows); };
      out.per_layer = adapter->per_layer();
    }
    return out;
  }
};

class Evaluation {
 public:
  explicit Evaluation(const EvalCommandOptions& options) : options_(options) {
    scoring_.batch_size = options.batch_size;
    scoring_.progress = [this](int64_t done, int64_t rows) {
      stop_if_interrupted();
      show(done, rows);
    };
  }
  ~Evaluation() {
    hide();
  }

  Judged load(const std::string& model, const std::string& adapter) const {
    generate::PipelineOptions options;
    options.kernels = options_.kernels.selection();
    options.tokenizer_cache = text::TokenizerCache::from_environment();
    if (!options_.chat_template.empty()) {
      options.chat_template = read_file(options_.chat_template);
    }
    options.progress = [this](uint64_t, uint64_t) { stop_if_interrupted(); };
    Judged out{
        generate::load_pipeline(
            hub::open_checkpoint(hub::resolve_model(model)),
            options),
        nullptr};
    out.adapter = std::make_unique<ModelAdapter>(
        out.pipeline.model,
        adapter,
        *options.kernels);
    return out;
  }

  const eval::ScoreOptions& scoring() const {
    return scoring_;
  }

  template <typename Report>
  int finish(const Report& report) {
    hide();
    if (!options_.json) {
      print(as_text(report));
      return kExitSuccess;
    }
    OrderedJson out = {{"model", options_.model}, {"file", options_.file}};
    if (!options_.adapter.empty()) {
      out["adapter"] = options_.adapter;
    }
    out.update(as_json(report));
    out["seconds"] =
        std::chrono::duration<double>(Clock::now() - start_).count();
    print(out.dump(2) + "\n");
    return kExitSuccess;
  }

 private:
  void stop_if_interrupted() const {
    if (interrupt_.is_interrupted()) {
      fail(ErrorKind::cancelled, "eval", "interrupted");
    }
  }
  void show(int64_t done, int64_t rows) {
    if (terminal_) {
      print_error(fmt::format("\r{} of {} rows", done, rows));
      shown_ = true;
    }
  }
  void hide() {
    if (shown_) {
      print_error("\r\x1b[K");
      shown_ = false;
    }
  }

  const EvalCommandOptions& options_;
  InterruptScope interrupt_;
  eval::ScoreOptions scoring_;
  Clock::time_point start_ = Clock::now();
  bool terminal_ = is_terminal(Stream::err);
  bool shown_ = false;
};

int run_perplexity(const EvalCommandOptions& options) {
  Evaluation evaluation(options);
  Judged judged = evaluation.load(options.model, options.adapter);
  auto rows =
      eval::windows_of_file(options.file, judged.pipeline, options.windows);
  return evaluation.finish(
      eval::perplexity(judged.subject(), rows, evaluation.scoring()));
}

int run_kl(const EvalCommandOptions& options) {
  bool alone = options.reference.empty() && options.reference_adapter.empty();
  if (alone && options.adapter.empty()) {
    fail(
        ErrorKind::invalid_request,
        "--reference",
        "is needed, or --adapter-path for a model with and without it");
  }
  Evaluation evaluation(options);
  Judged judged = evaluation.load(options.model, options.adapter);
  auto rows =
      eval::windows_of_file(options.file, judged.pipeline, options.windows);
  if (options.reference.empty()) {
    Judged same{
        judged.pipeline,
        std::make_unique<ModelAdapter>(
            judged.pipeline.model,
            options.reference_adapter,
            options.kernels.selection())};
    return evaluation.finish(eval::divergence(
        same.subject(),
        judged.subject(),
        rows,
        evaluation.scoring()));
  }
  Judged reference =
      evaluation.load(options.reference, options.reference_adapter);
  auto other_rows =
      eval::windows_of_file(options.file, reference.pipeline, options.windows);
  if (!std::ranges::equal(
          rows,
          other_rows,
          {},
          &eval::ScoredRow::tokens,
          &eval::ScoredRow::tokens)) {
    fail(
        ErrorKind::invalid_request,
        "--reference",
        "the two models make other tokens of {}",
        options.file);
  }
  return evaluation.finish(eval::divergence(
      reference.subject(),
      judged.subject(),
      rows,
      evaluation.scoring()));
}

int run_tasks(const EvalCommandOptions& options) {
  Evaluation evaluation(options);
  auto questions = eval::read_questions(options.file);
  Judged judged = evaluation.load(options.model, options.adapter);
  int known = judged.pipeline.context_length;
  int most = options.max_tokens > 0 ? options.max_tokens
      : known > 0                   ? known
                                    : 1 << 24;
  return evaluation.finish(eval::multiple_choice(
      judged.subject(),
      judged.pipeline,
      questions,
      {.max_tokens = most, .chat_template = options.apply_chat_template},
      evaluation.scoring()));
}

void add_shared_options(CLI::App& verb, EvalCommandOptions& options) {
  verb.add_option("-m,--model", options.model, "Model to judge")
      ->capture_default_str();
  add_adapter_option(verb, options.adapter);
  verb.add_option(
          "--batch-size",
          options.batch_size,
          "Rows computed together; changes no number")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  verb.add_flag("--json", options.json, "Print one JSON object");
  add_kernel_options(verb, options.kernels);
}

void add_window_options(CLI::App& verb, EvalCommandOptions& options) {
  verb.add_option(
          "FILE",
          options.file,
          "A text; or .jsonl in the formats of training data, where each "
          "sample is judged for itself")
      ->required();
  verb.add_option(
          "--length",
          options.windows.length,
          "Tokens of a window, which are computed together")
      ->check(CLI::Range(2, 1 << 24))
      ->capture_default_str();
  verb.add_option(
          "--stride",
          options.windows.stride,
          "Tokens from one window's beginning to the next one's: smaller ones "
          "give each token more to go by and take longer (default: --length)")
      ->check(CLI::Range(1, 1 << 24));
  verb.add_flag(
      "--mask-prompt",
      options.windows.mask_prompt,
      "Of .jsonl: judge the answers alone");
  verb.add_option(
          "--chat-template",
          options.chat_template,
          "File of the template for messages (default: the model's)")
      ->type_name("FILE");
}

}  // namespace

void add_eval_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<EvalCommandOptions>();
  CLI::App* verb = app.add_subcommand(
      "eval",
      "Judge a model: perplexity, distance from another one, multiple choice");
  verb->require_subcommand(1);
  verb->footer(
      "Example: mlxx eval perplexity -m smollm2 text.txt\n"
      "Page: docs/evaluation.md");

  CLI::App* perplexity = verb->add_subcommand(
      "perplexity",
      "How well a model predicts a text, with a 95 % confidence interval");
  add_window_options(*perplexity, *options);
  add_shared_options(*perplexity, *options);
  perplexity->footer(
      "Examples:\n"
      "  mlxx eval perplexity -m smollm2 text.txt --length 512 --stride 256\n"
      "  mlxx eval perplexity -m smollm2 --adapter-path adapters "
      "test.jsonl --mask-prompt");
  on_run(perplexity, context, [options] { return run_perplexity(*options); });

  CLI::App* kl = verb->add_subcommand(
      "kl",
      "How far a model's predictions are from a reference's");
  add_window_options(*kl, *options);
  kl->add_option(
        "--reference",
        options->reference,
        "Model to compare with (default: the same one)")
      ->type_name("MODEL");
  kl->add_option(
        "--reference-adapter-path",
        options->reference_adapter,
        "Folder of an adapter that the reference is computed with")
      ->type_name("FOLDER");
  add_shared_options(*kl, *options);
  kl->footer(
      "Examples:\n"
      "  mlxx eval kl -m ./quantized --reference ./model text.txt\n"
      "  mlxx eval kl -m smollm2 --adapter-path adapters text.txt");
  on_run(kl, context, [options] { return run_kl(*options); });

  CLI::App* tasks = verb->add_subcommand(
      "tasks",
      "Multiple choice: how often the right continuation is the likeliest");
  tasks
      ->add_option(
          "FILE",
          options->file,
          "JSON lines {\"context\": .., \"continuations\": [..], \"gold\": "
          "index}, optionally with \"task\"")
      ->required();
  tasks->add_flag(
      "--apply-chat-template",
      options->apply_chat_template,
      "Contexts are what a user says, continuations how the answer begins");
  tasks
      ->add_option(
          "--max-tokens",
          options->max_tokens,
          "Cut contexts on the left so that rows have at most these tokens "
          "(default: what the model takes)")
      ->check(CLI::Range(2, 1 << 24));
  add_shared_options(*tasks, *options);
  tasks->footer("Example: mlxx eval tasks -m smollm2 questions.jsonl --json");
  on_run(tasks, context, [options] { return run_tasks(*options); });
}

}  // namespace mlxx::apps
