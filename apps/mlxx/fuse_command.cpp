#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/mlxx/commands.h"
#include "apps/mlxx/console.h"
#include "mlxx/adapters/fuse.h"
#include "mlxx/base/json.h"
#include "mlxx/hub/resolve.h"

namespace mlxx::apps {
namespace {

struct FuseCommandOptions {
  std::string model = hub::kDefaultModel;
  std::string adapter = "adapters";
  std::string out = "fused_model";
  int bits = 0;
  bool json = false;
  adapters::FuseOptions fuse;
};

void print_json(
    const FuseCommandOptions& options,
    const adapters::FuseReport& report) {
  Json weights = Json::array();
  for (const auto& one : report.weights) {
    Json entry = {
        {"name", one.name},
        {"survives", one.survives},
        {"error", one.error}};
    entry["bits"] = one.bits > 0 ? Json(one.bits) : Json(nullptr);
    weights.push_back(std::move(entry));
  }
  Json json = {
      {"folder", options.out},
      {"survives", report.survives},
      {"error", report.error},
      {"weights", weights}};
  print(json.dump(2) + "\n");
}

void print_table(
    const FuseCommandOptions& options,
    const adapters::FuseReport& report) {
  bool quantized = std::ranges::any_of(report.weights, [](const auto& one) {
    return one.bits > 0;
  });
  if (quantized) {
    size_t width = 6;
    for (const auto& one : report.weights) {
      width = std::max(width, one.name.size());
    }
    print(fmt::format(
        "{:<{}}  {:>4}  {:>8}  {:>6}\n",
        "weight",
        width,
        "bits",
        "survives",
        "error"));
    for (const auto& one : report.weights) {
      print(fmt::format(
          "{:<{}}  {:>4}  {:>7.1f}%  {:>6.3f}\n",
          one.name,
          width,
          one.bits > 0 ? std::to_string(one.bits) : "-",
          100 * one.survives,
          one.error));
    }
  }
  print(fmt::format(
      "{} weights changed, {:.1f} % of the change survives (error {:.3f} of "
      "it)\nWritten: {}\n",
      report.weights.size(),
      100 * report.survives,
      report.error,
      options.out));
}

int run(FuseCommandOptions options) {
  if (options.bits > 0) {
    options.fuse.bits = options.bits;
  }
  auto checkpoint = hub::open_checkpoint(hub::resolve_model(options.model));
  auto report = adapters::fuse_adapter(
      checkpoint,
      options.adapter,
      options.out,
      options.fuse);
  if (options.json) {
    print_json(options, report);
  } else {
    print_table(options, report);
  }
  return 0;
}

}  // namespace

void add_fuse_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<FuseCommandOptions>();
  CLI::App* verb = app.add_subcommand(
      "fuse",
      "Write a model with an adapter's changes in its weights");
  verb->add_option("-m,--model", options->model, "Model")
      ->capture_default_str();
  verb->add_option(
          "--adapter,--adapter-path",
          options->adapter,
          "Folder of the adapter, or of weights trained with --full")
      ->capture_default_str();
  verb->add_option(
          "-o,--out,--save-path",
          options->out,
          "Folder to write, in MLX's format; it must not exist")
      ->capture_default_str();
  verb->add_flag(
      "--dequantize,--de-quantize",
      options->fuse.dequantize,
      "Write all quantized weights as dense ones");
  verb->add_option(
          "--bits",
          options->bits,
          "Bits of quantized weights that the adapter changes (default: as "
          "they are)")
      ->check(CLI::IsMember({2, 3, 4, 5, 6, 8}));
  verb->add_option(
          "--max-error",
          options->fuse.max_error,
          "Refuse to lose more than this share of the change by quantizing")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_flag(
      "--force",
      options->fuse.force,
      "Write it whatever quantizing loses");
  verb->add_flag("--json", options->json, "Print what was written as JSON");
  verb->footer(
      "Example: mlxx fuse --adapter adapters --out my-model --dequantize\n"
      "A change smaller than a quantization step is lost when the weight is "
      "quantized\nagain: what survives is measured first and printed.");
  on_run(verb, context, [options] { return run(*options); });
}

}  // namespace mlxx::apps
