#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/mlxx/commands.h"
#include "apps/mlxx/console.h"
#include "apps/mlxx/exit_codes.h"
#include "mlxx/base/json.h"
#include "mlxx/models/registry.h"

namespace mlxx::apps {

namespace {

int print_as_json() {
  OrderedJson out = OrderedJson::array();
  for (const models::ModelInfo* info : models::all_models()) {
    out.push_back(
        {{"model_type", info->model_type},
         {"aliases", info->aliases},
         {"features", info->features},
         {"checkpoints", info->checkpoints},
         {"notes", info->notes}});
  }
  print(out.dump(2) + "\n");
  return kExitSuccess;
}

int print_as_table() {
  size_t width = 0;
  for (const models::ModelInfo* info : models::all_models()) {
    width = std::max(width, info->model_type.size());
  }
  std::string text;
  for (const models::ModelInfo* info : models::all_models()) {
    text += fmt::format("{:<{}}  {}\n", info->model_type, width, info->notes);
    if (!info->aliases.empty()) {
      text += fmt::format(
          "{:<{}}  also as: {}\n",
          "",
          width,
          fmt::join(info->aliases, ", "));
    }
  }
  print(text);
  return kExitSuccess;
}

}  // namespace

void add_architectures_command(CLI::App& app, CommandContext& context) {
  auto json = std::make_shared<bool>(false);
  CLI::App* verb = app.add_subcommand(
      "architectures",
      "List the model families that this build runs");
  verb->add_flag(
      "--json",
      *json,
      "As a JSON array, with features and checkpoints");
  verb->footer("Example: mlxx architectures");
  on_run(verb, context, [json] {
    return *json ? print_as_json() : print_as_table();
  });
}

}  // namespace mlxx::apps
