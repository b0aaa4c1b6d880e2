#include <memory>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/mlxx/commands.h"
#include "apps/mlxx/console.h"
#include "apps/mlxx/doctor_selftest.h"
#include "apps/mlxx/exit_codes.h"
#include "apps/mlxx/host_report.h"
#include "mlxx/core/device.h"
#include "mlxx/core/mlx.h"
#include "mlxx/kernels/cuda_plugin/cuda_plugin.h"

namespace mlxx::apps {

namespace {

struct DoctorOptions {
  bool json = false;
  bool selftest = false;
};

std::string name_device() {
  DeviceInfo info = describe_device();
  const std::string& name = info.name.empty() ? info.architecture : info.name;
  return fmt::format(
      "{}{}{}",
      to_string(info.backend),
      name.empty() ? "" : ", ",
      name);
}

// The least that everything else needs: one product on the default device.
std::string find_problem() {
  try {
    mx::array ones = mx::ones({8, 8});
    float sum = mx::sum(mx::matmul(ones, ones)).item<float>();
    if (sum != 512.0f) {
      return fmt::format("a product of ones gave {} instead of 512", sum);
    }
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

int run(const DoctorOptions& options) {
  OrderedJson report = host_report();
  report["mlx"]["loaded"] = mx::version();
  report["device"] = name_device();
  if (backend() == Backend::cuda) {
    std::string why;
    const auto* plugin = kernels::cuda_plugin(&why);
    report["cuda_kernels"] =
        plugin ? fmt::format("loaded, for {}", plugin->architectures) : why;
  }
  std::string problem = find_problem();
  if (problem.empty() && options.selftest) {
    report["selftest"] = OrderedJson::array();
    int failures = 0;
    for (const auto& check : run_selftest()) {
      report["selftest"].push_back(
          {{"name", check.name},
           {"passed", check.passed},
           {"detail", check.detail}});
      failures += check.passed ? 0 : 1;
    }
    if (failures > 0) {
      problem =
          fmt::format("{} of the selftest's products are wrong", failures);
    }
  }
  report["problem"] = problem;
  report["ok"] = problem.empty();
  print(options.json ? report.dump(2) + "\n" : format_report(report));
  return problem.empty() ? kExitSuccess : kExitFailure;
}

}  // namespace

void add_doctor_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* verb = app.add_subcommand(
      "doctor",
      "Show what mlxx found on this machine, and what is missing");
  verb->add_flag("--json", options->json, "Print one JSON object");
  verb->add_flag(
      "--selftest",
      options->selftest,
      "Also compute known products and compare them");
  verb->footer(
      "Exit code 1 if mlxx cannot run here.\n"
      "Example: mlxx doctor --selftest");
  on_run(verb, context, [options] { return run(*options); });
}

}  // namespace mlxx::apps
