#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/mlxx/commands.h"
#include "apps/mlxx/console.h"
#include "apps/mlxx/exit_codes.h"
#include "apps/mlxx/help_format.h"
#include "apps/mlxx/runtime_program.h"
#include "apps/mlxx/usage_errors.h"
#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/base/runtime_install/installed_variants.h"
#include "mlxx/base/runtime_install/mlx_wheels.h"
#include "mlxx/base/runtime_loader/candidates.h"

namespace mlxx::apps {

namespace {

struct RuntimeOptions {
  std::string variant;
  std::vector<std::string> wheels;
  bool without_libraries = false;
  bool json = false;
  bool quiet = false;
};

std::string megabytes(uint64_t bytes) {
  return fmt::format("{:.0f} MB", static_cast<double>(bytes) / 1e6);
}

int install(const RuntimeOptions& options) {
  runtime::InstallOptions wanted;
  wanted.wheels.assign(options.wheels.begin(), options.wheels.end());
  wanted.without_libraries = options.without_libraries;
  wanted.show_progress = !options.quiet && is_terminal(Stream::err);
  if (!options.quiet) {
    wanted.on_step = [](std::string_view step) {
      print_error(fmt::format("{}\n", step));
    };
  }
  auto folder = runtime::install_variant(options.variant, wanted);
  print(fmt::format("{}\n", folder.string()));
  return kExitSuccess;
}

int list(const RuntimeOptions& options) {
  auto installed = runtime::installed_variants();
  std::vector<runtime::Candidate> usable;
  for (const auto& candidate : runtime::find_candidates()) {
    if (candidate.problem.empty()) {
      usable.push_back(candidate);
    }
  }
  const auto& first = usable.empty() ? runtime::Candidate{} : usable.front();
  if (options.json) {
    OrderedJson report = {
        {"folder", runtime::runtime_folder().string()},
        {"mlx_version", std::string(runtime::built_against())},
        {"variants", OrderedJson::array()},
        {"chosen", first.path.string()}};
    for (const auto& variant : installed) {
      report["variants"].push_back(
          {{"variant", variant.variant},
           {"version", variant.version},
           {"folder", variant.folder.string()},
           {"bytes", variant.bytes}});
    }
    print(report.dump(2) + "\n");
    return kExitSuccess;
  }
  std::string text;
  for (const auto& variant : installed) {
    bool is_other = variant.version != runtime::built_against();
    text += fmt::format(
        "{:<8} {:<10} {:>9}  {}{}\n",
        variant.variant,
        variant.version,
        megabytes(variant.bytes),
        variant.folder.string(),
        is_other ? "  (not for this mlxx)" : "");
  }
  if (installed.empty()) {
    text += fmt::format(
        "No variant is installed in {}.\n",
        runtime::runtime_folder().string());
  }
  text += fmt::format(
      "libmlx that mlxx takes first: {} ({})\n",
      first.path.string(),
      runtime::to_string(first.origin));
  print(text);
  return kExitSuccess;
}

int remove(const RuntimeOptions& options) {
  runtime::remove_variant(options.variant);
  return kExitSuccess;
}

}  // namespace

void add_runtime_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<RuntimeOptions>();
  CLI::App* verb = app.add_subcommand(
      "runtime",
      "Install, list and remove variants of MLX: cpu, cuda12, cuda13, metal");
  verb->require_subcommand(0, 1);

  CLI::App* install_verb = verb->add_subcommand(
      "install",
      "Get a variant by hash, with pip's downloader or from files");
  install_verb
      ->add_option("variant", options->variant, "cpu, cuda12, cuda13 or metal")
      ->required();
  install_verb
      ->add_option(
          "--from",
          options->wheels,
          "A wheel that is here already; may be repeated")
      ->type_name("FILE.whl");
  install_verb->add_flag(
      "--no-libraries",
      options->without_libraries,
      "CUDA: use the system's CUDA libraries, cuDNN and NCCL");
  install_verb->add_flag("-q,--quiet", options->quiet, "Print only the folder");
  install_verb->footer(
      "Examples:\n"
      "  mlxx runtime install cpu\n"
      "  mlxx runtime install cuda13\n"
      "  mlxx runtime install cpu --from "
      "mlx_cpu-0.32.4-py3-none-manylinux_2_35_x86_64.whl\n"
      "The libraries of the CUDA variants come under NVIDIA's licence.");
  on_run(install_verb, context, [options] { return install(*options); });

  CLI::App* list_verb = verb->add_subcommand(
      "list",
      "Show what is installed and which libmlx is taken");
  list_verb->add_flag("--json", options->json, "Print one JSON object");
  on_run(list_verb, context, [options] { return list(*options); });

  CLI::App* remove_verb =
      verb->add_subcommand("remove", "Remove an installed variant");
  remove_verb
      ->add_option("variant", options->variant, "cpu, cuda12, cuda13 or metal")
      ->required();
  on_run(remove_verb, context, [options] { return remove(*options); });

  verb->footer(
      "Examples:\n"
      "  mlxx runtime install cuda13\n"
      "  mlxx runtime list");
}

int run_runtime_program(int argc, char** argv) {
  CommandContext context;
  CLI::App app(
      "Language models on Apple GPUs, NVIDIA GPUs and any CPU.",
      "mlxx");
  app.formatter(std::make_shared<HelpFormat>(terminal_width(Stream::out)));
  app.set_help_flag("-h,--help", "Show this help");
  add_runtime_command(app, context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    print(selected_verb(app).help());
    return kExitSuccess;
  } catch (const CLI::ParseError& error) {
    print_error_line(describe_usage_error(app, error));
    return kExitWrongUse;
  }
  if (!context.body) {
    print_error(selected_verb(app).help());
    return kExitWrongUse;
  }
  try {
    return context.body();
  } catch (const Error& error) {
    print_error_line(error.what());
    return exit_code(error.kind());
  }
}

}  // namespace mlxx::apps
