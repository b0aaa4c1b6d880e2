#include <algorithm>
#include <limits>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/mlxx/generate_options.h"
#include "apps/mlxx/serve_options.h"
#include "apps/mlxx/train_options.h"
#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/core/device.h"

// From what stands on the command line and in the file of --config to what the
// trainer takes.
namespace mlxx::apps {

namespace {

constexpr size_t kMostConfig = size_t{1} << 20;

std::string text_of(const Json& value) {
  return value.is_string()
      ? value.get<std::string>()
      : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Files of mlx-lm say more than options.
struct ConfigFile {
  CLI::App& verb;
  const std::string& place;

  [[noreturn]] void refuse(const std::string& key, const std::string& what)
      const {
    fail(ErrorKind::invalid_request, place, "{} {}", key, what);
  }

  void set(const std::string& key, const std::string& option, const Json& value)
      const {
    CLI::Option* found = verb.get_option_no_throw("--" + option);
    if (!found || option == "config" || option == "help") {
      refuse("\"" + key + "\"", "is no option of mlxx train");
    }
    if (found->count() > 0 || value.is_null()) {
      return;
    }
    try {
      if (value.is_array()) {
        for (const auto& entry : value) {
          found->add_result(text_of(entry));
        }
      } else {
        found->add_result(text_of(value));
      }
      if (found->count() > 0) {
        found->run_callback();
      }
    } catch (const CLI::Error& error) {
      refuse("\"" + key + "\"", error.what());
    }
  }

  void set_adapter_parameters(const Json& parameters) const {
    if (!parameters.is_object()) {
      refuse("\"lora_parameters\"", "is no object");
    }
    for (const auto& [key, value] : parameters.items()) {
      const std::string option =
          key == "rslora" || key == "use_rslora" ? "rslora" : "lora-" + key;
      set("lora_parameters." + key, option, value);
    }
  }

  // {"adam": {..}, ..}: that of the chosen one counts, as in mlx-lm.
  void set_optimizer_config(const Json& all, const std::string& chosen) const {
    if (!all.is_object()) {
      refuse("\"optimizer_config\"", "is no object");
    }
    if (auto found = all.find(chosen); found != all.end()) {
      set("optimizer_config", "optimizer-config", *found);
    }
  }

  void set_all(const Json& content, const std::string& optimizer) const {
    for (const auto& [key, value] : content.items()) {
      if (key == "lora_parameters") {
        set_adapter_parameters(value);
      } else if (key == "optimizer_config") {
        set_optimizer_config(value, optimizer);
      } else if (key == "train") {
        if (value != true) {
          refuse("\"train\"", "is not true, and training is all it does");
        }
      } else if (
          key == "report_to" || key == "project_name" ||
          key == "trust_remote_code") {
        if (!value.is_null() && value != false) {
          refuse("\"" + key + "\"", "is nothing that mlxx train does");
        }
      } else {
        std::string option = key;
        std::replace(option.begin(), option.end(), '_', '-');
        set(key, option, value);
      }
    }
  }
};

void read_config(CLI::App& verb, TrainCommandOptions& options) {
  if (options.config.empty()) {
    return;
  }
  const Json content =
      parse_json(read_file(options.config, kMostConfig), options.config);
  if (!content.is_object()) {
    fail(ErrorKind::bad_file, options.config, "is no JSON object of options");
  }
  const ConfigFile file{verb, options.config};
  // Which arguments count depends on it.
  if (auto found = content.find("optimizer"); found != content.end()) {
    file.set("optimizer", "optimizer", *found);
  }
  file.set_all(content, options.optimizer);
}

Json parsed(const std::string& text, const char* option) {
  try {
    return parse_json(text, option);
  } catch (const Error& error) {
    throw Error(ErrorKind::invalid_request, error.what());
  }
}

train::ScheduleOptions schedule_of(const TrainCommandOptions& options) {
  train::ScheduleOptions schedule;
  if (options.lr_schedule.empty()) {
    schedule.arguments = {options.learning_rate.value_or(1e-5)};
    schedule.warmup = options.warmup;
    return schedule;
  }
  constexpr const char* kPlace = "--lr-schedule";
  if (options.learning_rate || options.is_given("--warmup")) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "says learning rate and warm-up itself, {} is given too",
        options.learning_rate ? "--learning-rate" : "--warmup");
  }
  const Json json = parsed(options.lr_schedule, kPlace);
  if (!json.is_object()) {
    fail(ErrorKind::invalid_request, kPlace, "is no JSON object");
  }
  for (const auto& [key, value] : json.items()) {
    if (key != "name" && key != "arguments" && key != "warmup" &&
        key != "warmup_init") {
      fail(ErrorKind::invalid_request, kPlace, "has an unknown \"{}\"", key);
    }
  }
  try {
    const JsonView view(json, kPlace);
    schedule.name = view.string("name");
    schedule.arguments = view.numbers_or_empty("arguments");
    schedule.warmup = view.integer_or("warmup", 0, 0, int64_t{1} << 40);
    schedule.warmup_init = view.number_or("warmup_init", 0);
  } catch (const Error& error) {
    throw Error(ErrorKind::invalid_request, error.what());
  }
  return schedule;
}

// An option that another one makes meaningless is refused, not ignored.
void check_together(const TrainCommandOptions& options) {
  const auto only_with = [&](bool holds,
                             std::initializer_list<const char*> names,
                             const char* what) {
    for (const char* name : names) {
      if (!holds && options.is_given(name)) {
        fail(ErrorKind::invalid_request, name, "is for {}", what);
      }
    }
  };
  const auto& o = options;
  only_with(
      o.method == "dpo",
      {"--beta", "--precompute-reference"},
      "--method dpo");
  only_with(o.method == "orpo", {"--orpo-lambda"}, "--method orpo");
  only_with(
      o.method == "sft",
      {"--mask-prompt"},
      "--method sft; the others learn answers alone");
  only_with(
      !o.is_full(),
      {"--lora-rank",
       "--lora-scale",
       "--lora-alpha",
       "--rslora",
       "--lora-dropout",
       "--lora-keys",
       "--lora-plus-ratio",
       "--rank-policy",
       "--sensitivities",
       "--peft",
       "--resume-adapter-file"},
      "adapters, and --full trains the model itself");
  only_with(
      o.rank_policy == "by-kl",
      {"--sensitivities"},
      "--rank-policy by-kl");
  only_with(o.pack, {"--separate-prompts"}, "--pack");
  only_with(o.test, {"--test-batches"}, "--test");
  only_with(!o.samples.empty(), {"--sample-tokens"}, "--sample");
  only_with(
      o.recompute == "segments",
      {"--segment-layers"},
      "--recompute segments");
  if (o.full && o.is_given("--fine-tune-type") && o.fine_tune_type != "full") {
    fail(
        ErrorKind::invalid_request,
        "--full",
        "and --fine-tune-type {} exclude each other",
        o.fine_tune_type);
  }
  if (o.grad_checkpoint && o.recompute && o.recompute != "checkpoint") {
    fail(
        ErrorKind::invalid_request,
        "--grad-checkpoint",
        "and --recompute {} exclude each other",
        *o.recompute);
  }
  if (o.test && o.method == "dpo" && o.is_full()) {
    fail(
        ErrorKind::unsupported,
        "--test",
        "of DPO with --full asks the model before training, which is gone");
  }
  if (o.iters && o.epochs) {
    fail(
        ErrorKind::invalid_request,
        "--epochs",
        "and --iters exclude each other");
  }
  if (o.epochs && !(*o.epochs > 0 && *o.epochs <= 1e9)) {
    fail(
        ErrorKind::invalid_request,
        "--epochs",
        "is a number above 0, found {}",
        *o.epochs);
  }
  if (o.resume && (o.overwrite || !o.resume_adapter_file.empty())) {
    fail(
        ErrorKind::invalid_request,
        "--resume",
        "and {} exclude each other",
        o.overwrite ? "--overwrite" : "--resume-adapter-file");
  }
  if (o.data.empty()) {
    fail(ErrorKind::invalid_request, "--data", "is missing");
  }
  require_utf8("--adapter-path", o.adapter_path);
  if (o.adapter_path.empty()) {
    fail(ErrorKind::invalid_request, "--adapter-path", "is empty");
  }
  for (const auto& prompt : o.samples) {
    require_utf8("--sample", prompt);
  }
}

}  // namespace

void finish_train_options(CLI::App& verb, TrainCommandOptions& options) {
  read_config(verb, options);
  for (const auto* option : verb.get_options()) {
    if (option->count() > 0) {
      options.given.push_back("--" + option->get_single_name());
    }
  }
  check_together(options);
  require_utf8("model", options.model);

  auto& loop = options.loop;
  loop.objective = {
      train::method_of(options.method),
      options.beta,
      options.orpo_lambda};
  loop.optimizer = train::optimizer_options(
      options.optimizer,
      parsed(options.optimizer_config, "--optimizer-config"));
  loop.schedule = schedule_of(options);
  // MLX's Adafactor makes its own rate unless it is told not to; who names one
  // means it.
  if (options.optimizer == "adafactor" &&
      (options.learning_rate || !options.lr_schedule.empty())) {
    loop.optimizer.relative_step = false;
  }
  loop.iterations = options.iters.value_or(1000);
  if (!options.clear_cache_threshold.empty()) {
    loop.cache_bytes =
        parse_bytes(options.clear_cache_threshold, "--clear-cache-threshold");
  } else if (backend() == Backend::cuda) {
    // MLX keeps what is used and what is free below one limit there.
    loop.cache_bytes = std::numeric_limits<size_t>::max();
  }

  auto& lora = options.lora;
  lora.dora = options.fine_tune_type == "dora";
  lora.num_layers = options.num_layers;
  lora.seed = loop.seed;
  if (options.rank_policy == "by-bits") {
    lora.ranks = train::RankPolicy::by_bits;
  } else if (options.rank_policy == "by-kl") {
    lora.ranks = train::RankPolicy::by_kl;
    lora.sensitivities = train::read_sensitivities(options.sensitivities);
  }
}

}  // namespace mlxx::apps
