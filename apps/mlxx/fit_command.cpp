#include <algorithm>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/mlxx/commands.h"
#include "apps/mlxx/console.h"
#include "apps/mlxx/exit_codes.h"
#include "apps/mlxx/generate_options.h"
#include "apps/mlxx/generate_report.h"
#include "apps/mlxx/model_argument.h"
#include "apps/mlxx/serve_options.h"
#include "mlxx/base/error.h"
#include "mlxx/core/device.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/hub/resolve.h"
#include "mlxx/plan/memory_plan.h"

namespace mlxx::apps {

namespace {

constexpr int kDefaultContext = 4096;
constexpr int kMostRows = 4096;

struct FitOptions {
  ModelArgument model;
  std::optional<int> context;
  int batch = 1;
  int prefill_step = 512;
  std::optional<std::string> memory_budget;
  std::string prompt_cache = "0";
  KernelOptions kernels;
  bool json = false;
};

struct Fit {
  std::string model;
  plan::Workload work;
  plan::MemoryPlan plan;
  size_t budget = 0;  // 0: none is known
  int model_context = 0;
  int largest_context = 0;  // for this batch
  int largest_batch = 0;    // for this context

  bool fits() const {
    return budget == 0 || plan.total() <= budget;
  }
};

plan::ModelMemory memory_of(const FitOptions& options, Fit& fit) {
  auto checkpoint = hub::open_checkpoint(hub::resolve_model(fit.model));
  models::LoadOptions load;
  load.kernels = options.kernels.selection();
  load.sizes_only = true;
  plan::ModelMemory memory(models::load_model(*checkpoint, load));
  fit.model_context = memory.summary().max_position_embeddings;
  return memory;
}

Fit make_fit(
    const plan::ModelMemory& memory,
    const FitOptions& options,
    Fit fit) {
  const int most = fit.model_context > 0 ? fit.model_context : 1 << 20;
  if (options.context && fit.model_context > 0 &&
      *options.context > fit.model_context) {
    fail(
        ErrorKind::invalid_request,
        "--context",
        "is {}, the model takes {} tokens",
        *options.context,
        fit.model_context);
  }
  fit.work.context = options.context.value_or(std::min(kDefaultContext, most));
  fit.work.rows = options.batch;
  fit.work.prefill_step = options.prefill_step;
  fit.work.prefix_cache_bytes =
      parse_bytes(options.prompt_cache, "--prompt-cache-bytes");
  fit.budget = options.memory_budget
      ? parse_bytes(*options.memory_budget, "--memory-budget")
      : static_cast<size_t>(describe_device().working_set_bytes);
  fit.plan = memory.plan(fit.work);
  if (fit.budget > 0) {
    fit.largest_context = memory.largest_context(fit.work, fit.budget, most);
    fit.largest_batch = memory.largest_batch(fit.work, fit.budget, kMostRows);
  }
  return fit;
}

OrderedJson json_of(const Fit& fit, const plan::ModelMemory& memory) {
  OrderedJson growth = OrderedJson::array();
  for (const auto& kind : memory.growth()) {
    growth.push_back(
        {{"kind", kind.kind},
         {"layers", kind.layers},
         {"bytes_per_token", kind.token_bytes},
         {"fixed_bytes", kind.fixed_bytes},
         {"rounded_to_tokens", kind.step},
         {"most_tokens", kind.most_tokens}});
  }
  OrderedJson json = {
      {"model", fit.model},
      {"device", to_string(backend())},
      {"context", fit.work.context},
      {"batch", fit.work.rows},
      {"prefill_step", fit.work.prefill_step},
      {"bytes",
       {{"weights", fit.plan.weights},
        {"state", fit.plan.state},
        {"prefill", fit.plan.prefill},
        {"logits", fit.plan.logits},
        {"prefix_cache", fit.plan.prefix_cache},
        {"adapters", fit.plan.adapters},
        {"total", fit.plan.total()}}},
      {"state_of_layers", growth},
      {"model_context", fit.model_context},
      {"memory_budget", nullptr},
      {"fits", fit.fits()},
      {"largest_context", nullptr},
      {"largest_batch", nullptr}};
  if (fit.budget > 0) {
    json["memory_budget"] = fit.budget;
    json["largest_context"] = fit.largest_context;
    json["largest_batch"] = fit.largest_batch;
  }
  return json;
}

std::string describe(const plan::StateGrowth& kind) {
  if (kind.token_bytes == 0) {
    return fmt::format(
        "{} a row, whatever its length",
        format_bytes(kind.fixed_bytes));
  }
  std::string text = fmt::format("{} a token", format_bytes(kind.token_bytes));
  if (kind.most_tokens > 0) {
    text += fmt::format(", of the newest {}", kind.most_tokens);
  }
  return text;
}

std::string text_of(const Fit& fit, const plan::ModelMemory& memory) {
  std::string text = fmt::format(
      "{} on {}: {} tokens of context, batch {}\n\n",
      fit.model,
      to_string(backend()),
      fit.work.context,
      fit.work.rows);
  const auto line = [&](const char* what, size_t bytes, std::string_view note) {
    std::string row = fmt::format("{:<14}{:>10}", what, format_bytes(bytes));
    if (!note.empty()) {
      row += fmt::format("   {}", note);
    }
    text += row + "\n";
  };
  line("weights", fit.plan.weights, "");
  bool first = true;
  for (const auto& kind : memory.growth()) {
    const std::string note = fmt::format("{}: {}", kind.kind, describe(kind));
    if (first) {
      line("state", fit.plan.state, note);
    } else {
      text += fmt::format("{:<27}{}\n", "", note);
    }
    first = false;
  }
  line(
      "prefill",
      fit.plan.prefill,
      fmt::format("one chunk of {} tokens", fit.work.prefill_step));
  line("logits", fit.plan.logits, "");
  if (fit.plan.prefix_cache > 0) {
    line("prefix cache", fit.plan.prefix_cache, "");
  }
  line("total", fit.plan.total(), "");
  if (fit.budget == 0) {
    return text + "\nHow much memory there is, nobody says.\n";
  }
  text += fmt::format(
      "\n{} the budget of {}.\n",
      fit.fits() ? "Fits" : "Does not fit",
      format_bytes(fit.budget));
  text += fmt::format(
      "Largest context with batch {}: {}.\n",
      fit.work.rows,
      fit.largest_context > 0 ? fmt::to_string(fit.largest_context) : "none");
  text += fmt::format(
      "Largest batch with {} tokens: {}{}.\n",
      fit.work.context,
      fit.largest_batch > 0 ? fmt::to_string(fit.largest_batch) : "none",
      fit.largest_batch == kMostRows ? " or more" : "");
  return text;
}

int run(const FitOptions& options) {
  Fit fit;
  fit.model = options.model.chosen();
  const plan::ModelMemory memory = memory_of(options, fit);
  fit = make_fit(memory, options, std::move(fit));
  if (options.json) {
    print(json_of(fit, memory)
              .dump(2, ' ', false, OrderedJson::error_handler_t::replace));
    print("\n");
  } else {
    print(text_of(fit, memory));
  }
  return fit.fits() ? kExitSuccess : kExitFailure;
}

}  // namespace

void add_fit_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<FitOptions>();
  CLI::App* verb = app.add_subcommand(
      "fit",
      "Say how much memory a model takes, and what fits, without loading it");
  add_model_argument(*verb, options->model);
  verb->add_option(
          "--context",
          options->context,
          "Tokens of each conversation, prompt and answer; the smaller of 4096 "
          "and what the model takes if it is not given")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 30));
  verb->add_option("--batch", options->batch, "Conversations at one time")
      ->type_name("N")
      ->check(CLI::Range(1, kMostRows))
      ->capture_default_str();
  verb->add_option(
          "--prefill-step-size",
          options->prefill_step,
          "Tokens of a prompt that are computed at once, most")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option(
          "--memory-budget",
          options->memory_budget,
          "What may be used, as in 12GB; what the device can give if it is not "
          "given")
      ->type_name("SIZE");
  verb->add_option(
          "--prompt-cache-bytes",
          options->prompt_cache,
          "What the prefix cache of a server may take")
      ->type_name("SIZE")
      ->capture_default_str();
  add_kernel_options(*verb, options->kernels);
  verb->add_flag("--json", options->json, "Print one JSON object");
  verb->footer("Example: mlxx fit smollm2 --context 8192 --batch 8");
  on_run(verb, context, [options] { return run(*options); });
}

}  // namespace mlxx::apps
