#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "apps/mlxx/commands.h"
#include "apps/mlxx/completions.h"
#include "apps/mlxx/console.h"
#include "apps/mlxx/exit_codes.h"

namespace mlxx::apps {

void add_completions_command(CLI::App& app, CommandContext& context) {
  auto shell = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand(
      "completions",
      "Print a completion script for bash, zsh or fish");
  verb->add_option("SHELL", *shell, kShells)->required();
  verb->footer(
      "Examples:\n"
      "  eval \"$(mlxx completions bash)\"\n"
      "  eval \"$(mlxx completions zsh)\"\n"
      "  mlxx completions fish > ~/.config/fish/completions/mlxx.fish");
  on_run(verb, context, [&app, shell] {
    print(completion_script(app, *shell));
    return kExitSuccess;
  });
}

}  // namespace mlxx::apps
