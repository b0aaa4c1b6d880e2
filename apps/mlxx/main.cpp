#include <exception>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "apps/mlxx/commands.h"
#include "apps/mlxx/console.h"
#include "apps/mlxx/exit_codes.h"
#include "apps/mlxx/help_format.h"
#include "apps/mlxx/host_report.h"
#include "apps/mlxx/runtime_program.h"
#include "mlxx/base/error.h"
#include "mlxx/base/runtime_loader/runtime_loader.h"
#include "mlxx/base/runtime_loader/shared_library.h"
#include "mlxx/capi/function_table.h"
#include "mlxx_build_info.h"

// The program itself is thin: it picks a libmlx, then loads libmlxx-impl with
// everything else. What helps where no libmlx can be loaded is linked in here.

namespace {

using namespace mlxx::apps;
using MainFunction = int (*)(int argc, char** argv);

MainFunction load_main() {
  auto runtime = mlxx::runtime::load_libmlx();
  for (const auto& passed : runtime.passed_over) {
    if (passed.origin == mlxx::runtime::Origin::installed) {
      print_error(fmt::format(
          "mlxx: warning: [{}] {}; using {}\n",
          passed.path.string(),
          passed.problem,
          runtime.libmlx.string()));
    }
  }
  void* implementation = mlxx::runtime::load_implementation();
  auto* table =
      static_cast<const mlxx::capi::FunctionTable*>(mlxx::runtime::find_symbol(
          implementation,
          mlxx::capi::kFunctionTableSymbol));
  auto main_function = reinterpret_cast<MainFunction>(
      mlxx::runtime::find_symbol(implementation, mlxx::capi::kMainSymbol));
  if (!table || !main_function ||
      std::string_view(table->version) != kBuildVersion) {
    mlxx::fail(
        mlxx::ErrorKind::bad_file,
        "libmlxx-impl",
        "comes from another build than this mlxx {}",
        kBuildVersion);
  }
  return main_function;
}

bool has_argument(int argc, char** argv, std::string_view wanted) {
  for (int i = 1; i < argc; ++i) {
    if (argv[i] == wanted) {
      return true;
    }
  }
  return false;
}

// What can still be done for the user without a libmlx.
int run_without_libmlx(int argc, char** argv, const mlxx::Error& error) {
  std::string_view verb = argc > 1 ? argv[1] : "";
  if (verb == "doctor") {
    return report_without_libmlx(
        error.what(),
        has_argument(argc, argv, "--json"));
  }
  if (verb == "--version") {
    print(fmt::format(
        "mlxx {} (commit {})\nMLX {} wanted, none loaded: {}\n",
        kBuildVersion,
        kBuildCommit,
        mlxx::runtime::built_against(),
        error.what()));
    return kExitSuccess;
  }
  if (verb == "--help" || verb == "-h" || verb == "help") {
    print(fmt::format(
        "mlxx {}: language models on Apple GPUs, NVIDIA GPUs and any CPU.\n\n"
        "No libmlx could be loaded, so only these verbs work now:\n"
        "  mlxx runtime install cpu|cuda13|cuda12|metal   get one\n"
        "  mlxx runtime list                              what there is\n"
        "  mlxx doctor                                    what is wrong\n\n"
        "{}\n",
        kBuildVersion,
        error.what()));
    return kExitSuccess;
  }
  print_error_line(error.what());
  return exit_code(error.kind());
}

int run(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "runtime") {
    return run_runtime_program(argc, argv);
  }
  MainFunction main_function = nullptr;
  try {
    main_function = load_main();
  } catch (const mlxx::Error& error) {
    return run_without_libmlx(argc, argv, error);
  }
  return main_function(argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const ClosedOutput&) {
    return kExitSuccess;
  } catch (const std::exception& error) {
    print_error_line(error.what());
    return kExitFailure;
  }
}
