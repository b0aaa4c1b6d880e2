#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "apps/mlxx/commands.h"
#include "apps/mlxx/console.h"
#include "apps/mlxx/exit_codes.h"
#include "mlxx/base/error.h"
#include "mlxx/base/utf8.h"
#include "mlxx/hub/progress_meter.h"
#include "mlxx/hub/removal.h"

namespace mlxx::apps {

namespace {

constexpr size_t kShownPaths = 10;

struct RmOptions {
  std::vector<std::string> models;
  bool yes = false;
  bool dry_run = false;
};

std::string describe(const hub::RemovalPlan& plan) {
  std::string text = fmt::format(
      "{}: {}\n",
      escape_line(plan.model),
      hub::format_bytes(plan.bytes));
  for (size_t i = 0; i < plan.paths.size(); ++i) {
    if (i == kShownPaths) {
      text += fmt::format("  and {} more\n", plan.paths.size() - i);
      break;
    }
    text += fmt::format("  {}\n", escape_line(plan.paths[i].string()));
  }
  return text;
}

// Anything but a plain yes is a no, the end of the input too.
bool confirm() {
  print_error("Delete this? [y/N] ");
  std::string answer;
  bool answered = static_cast<bool>(std::getline(std::cin, answer));
  if (!answered) {
    print_error("\n");
    std::cin.clear();
  }
  return answered && (answer == "y" || answer == "Y" || answer == "yes");
}

int run(const RmOptions& options) {
  // All names are looked up before anything is deleted.
  std::vector<hub::RemovalPlan> plans;
  uint64_t bytes = 0;
  for (const std::string& model : options.models) {
    plans.push_back(hub::plan_removal(model));
    bytes += plans.back().bytes;
  }
  for (const hub::RemovalPlan& plan : plans) {
    print_error(describe(plan));
  }
  if (options.dry_run) {
    return kExitSuccess;
  }
  if (!options.yes && !confirm()) {
    print_error(
        isatty(STDIN_FILENO) == 1 ? "Nothing was deleted.\n"
                                  : "Nothing was deleted (--yes answers the "
                                    "question).\n");
    return kExitFailure;
  }
  for (const hub::RemovalPlan& plan : plans) {
    hub::execute_removal(plan);
  }
  print_error(fmt::format("{} deleted.\n", hub::format_bytes(bytes)));
  return kExitSuccess;
}

}  // namespace

void add_rm_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<RmOptions>();
  CLI::App* verb = app.add_subcommand("rm", "Delete models that were pulled");
  verb->add_option(
          "MODEL",
          options->models,
          "A name of `mlxx list`: smollm2, org/repo (all revisions) or "
          "org/repo@rev")
      ->required();
  verb->add_flag("-y,--yes", options->yes, "Do not ask");
  verb->add_flag(
      "-n,--dry-run",
      options->dry_run,
      "Only show what would be deleted");
  verb->footer(
      "Files that other revisions use are kept; files and folders of your own "
      "are never touched.\n"
      "Example: mlxx rm smollm2");
  on_run(verb, context, [options] { return run(*options); });
}

}  // namespace mlxx::apps
