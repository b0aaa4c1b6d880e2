#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/mlxx/commands.h"
#include "apps/mlxx/console.h"
#include "apps/mlxx/exit_codes.h"
#include "apps/mlxx/model_argument.h"
#include "apps/mlxx/model_report.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/hub/resolve.h"

namespace mlxx::apps {

namespace {

struct ShowOptions {
  ModelArgument model;
  bool json = false;
};

int run(const ShowOptions& options) {
  auto checkpoint =
      hub::open_checkpoint(hub::resolve_model(options.model.chosen()));
  auto report = make_model_report(*checkpoint);
  if (options.json) {
    auto json = model_report_json(report);
    print(json.dump(2, ' ', false, OrderedJson::error_handler_t::replace));
    print("\n");
  } else {
    print(format_model_report(report));
  }
  return kExitSuccess;
}

}  // namespace

void add_show_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* verb = app.add_subcommand(
      "show",
      "Show a model's architecture, sizes, quantization and texts");
  add_model_argument(*verb, options->model);
  verb->add_flag("--json", options->json, "Print one JSON object");
  verb->footer("Example: mlxx show smollm2");
  on_run(verb, context, [options] { return run(*options); });
}

}  // namespace mlxx::apps
