#include "apps/mlxx/program.h"

#include <cerrno>
#include <csignal>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "apps/mlxx/console.h"
#include "apps/mlxx/exit_codes.h"
#include "apps/mlxx/help_format.h"
#include "apps/mlxx/log_output.h"
#include "apps/mlxx/process_start.h"
#include "apps/mlxx/usage_errors.h"
#include "apps/mlxx/version.h"
#include "mlxx/base/error.h"

namespace mlxx::apps {

namespace {

using AddCommand = void (*)(CLI::App& app, CommandContext& context);

// In the order of --help.
constexpr AddCommand kCommands[] = {
    // Answers.
    add_generate_command,
    add_chat_command,
    add_serve_command,
    add_embed_command,
    add_rerank_command,
    // Training.
    add_train_command,
    add_fuse_command,
    add_eval_command,
    // Models.
    add_show_command,
    add_fit_command,
    add_list_command,
    add_pull_command,
    add_rm_command,
    add_bench_command,
    add_architectures_command,
    add_logits_command,
    // The program.
    add_doctor_command,
    add_runtime_command,
    add_completions_command,
};

// Flags that every verb takes, after it.
void add_common_options(CLI::App& verb, std::string& log_level) {
  verb.add_option(
          "--log-level",
          log_level,
          fmt::format("Log this and worse to stderr: {}", kLogLevels))
      ->envname("")
      ->type_name("LEVEL")
      ->group(kCommonGroup);
  if (CLI::Option* help = verb.get_help_ptr()) {
    help->group(kCommonGroup);
  }
  for (CLI::App* inner : verb.get_subcommands({})) {
    inner->group("Verbs");
    add_common_options(*inner, log_level);
  }
}

// A descriptor 0, 1 or 2 that is closed would be given to the next file that
// is opened, which output would then be written into.
void occupy_standard_descriptors() {
  int descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
  while (descriptor >= 0 && descriptor <= STDERR_FILENO) {
    // Stays open on purpose; writing to it fails.
    descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
  if (descriptor > STDERR_FILENO) {
    close(descriptor);
  }
}

// CLI11 takes the argument after "--flag=" as the flag's value, so an empty
// shell variable would swallow the prompt. ("--flag", "") is unambiguous.
// "help VERB" is "VERB --help".
std::vector<std::string> read_arguments(int argc, char** argv) {
  std::vector<std::string> arguments;
  bool help = argc > 1 && std::string_view(argv[1]) == "help";
  bool options_ended = false;
  for (int i = help ? 2 : 1; i < argc; ++i) {
    std::string argument = argv[i];
    options_ended = options_ended || argument == "--";
    bool empty_value = !options_ended && argument.size() > 3 &&
        argument.starts_with("--") && argument.find('=') == argument.size() - 1;
    if (empty_value) {
      argument.pop_back();
    }
    arguments.push_back(std::move(argument));
    if (empty_value) {
      arguments.emplace_back();
    }
  }
  if (help) {
    arguments.emplace_back("--help");
  }
  return arguments;
}

int run_command_line(int argc, char** argv) {
  CommandContext context;
  context.process_start = process_start();
  std::string log_level;
  auto app = make_app(context);
  add_common_options(*app, log_level);
  try {
    auto arguments = read_arguments(argc, argv);
    context.arguments = arguments;
    // CLI11 reads the list from its end.
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app->parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    print(selected_verb(*app).help());
    return kExitSuccess;
  } catch (const CLI::CallForVersion&) {
    print(version_text());
    return kExitSuccess;
  } catch (const CLI::ParseError& error) {
    print_error_line(describe_usage_error(*app, error));
    return kExitWrongUse;
  }
  if (!context.body) {
    print_error(selected_verb(*app).help());
    return kExitWrongUse;
  }
  start_log_output(log_level);
  int code = context.body();
  // What a verb wrote itself may still wait in the buffer.
  print("");
  return code;
}

int run_and_map_errors(int argc, char** argv) {
  try {
    return run_command_line(argc, argv);
  } catch (const ClosedOutput&) {
    return kExitSuccess;
  } catch (const Error& error) {
    print_error_line(error.what());
    return exit_code(error.kind());
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::broken_pipe) {
      return kExitSuccess;
    }
    print_error_line(error.what());
  } catch (const std::bad_alloc&) {
    print_error_line("[memory] not enough memory");
  } catch (const std::exception& error) {
    print_error_line(error.what());
  } catch (...) {
    print_error_line("[program] an unknown exception");
  }
  return kExitFailure;
}

}  // namespace

std::unique_ptr<CLI::App> make_app(CommandContext& context) {
  auto app = std::make_unique<CLI::App>(
      "Language models on Apple GPUs, NVIDIA GPUs and any CPU.",
      "mlxx");
  // Subcommands inherit both from here.
  app->formatter(std::make_shared<HelpFormat>(terminal_width(Stream::out)));
  app->set_help_flag("-h,--help", "Show this help");
  app->get_formatter()->label("Positionals", "Arguments");
  // At most one: a prompt may be the name of another verb.
  app->require_subcommand(0, 1);
  // Only caught by the parser: the text needs MLX, which help does not.
  app->set_version_flag("--version", std::string("mlxx"), "Show the version");
  app->get_option("--version")->group(kCommonGroup);
  for (AddCommand add : kCommands) {
    add(*app, context);
  }
  app->footer(
      "Examples:\n"
      "  mlxx generate \"What is the capital of France?\"\n"
      "  mlxx chat -m smollm2\n"
      "  mlxx VERB --help");
  return app;
}

int run_program(int argc, char** argv) {
  occupy_standard_descriptors();
  // A reader that goes away shows as EPIPE, which print() handles.
  std::signal(SIGPIPE, SIG_IGN);
  int code = run_and_map_errors(argc, argv);
  stop_log_output();
  return code;
}

}  // namespace mlxx::apps
