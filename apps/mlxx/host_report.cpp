#include "apps/mlxx/host_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "apps/mlxx/console.h"
#include "apps/mlxx/exit_codes.h"
#include "apps/mlxx/processor.h"
#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"
#include "mlxx/base/host_memory.h"
#include "mlxx/base/paths.h"
#include "mlxx/base/runtime_loader/blas.h"
#include "mlxx/base/runtime_loader/nvidia_driver.h"
#include "mlxx/base/runtime_loader/runtime_loader.h"
#include "mlxx/base/runtime_loader/shared_library.h"
#include "mlxx_build_info.h"

namespace mlxx::apps {

namespace {

std::string gib(uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

// The libmlx of this process; empty if none is loaded.
std::filesystem::path loaded_libmlx() {
  auto mapped = runtime::mapped_libraries(runtime::library_file_name("mlx"));
  return mapped.empty() ? std::filesystem::path() : mapped.front();
}

OrderedJson candidates_report(const std::filesystem::path& loaded) {
  OrderedJson list = OrderedJson::array();
  for (const auto& candidate : runtime::find_candidates()) {
    std::error_code error;
    bool in_use = !loaded.empty() &&
        std::filesystem::equivalent(candidate.path, loaded, error);
    list.push_back(
        {{"path", candidate.path.string()},
         {"origin", std::string(runtime::to_string(candidate.origin))},
         {"problem", candidate.problem},
         {"in_use", in_use}});
  }
  return list;
}

OrderedJson nvidia_report(OrderedJson& missing) {
  OrderedJson report;
  std::string why_not;
  auto driver = runtime::find_nvidia_driver(&why_not);
  if (!driver) {
    report["reason"] = why_not;
    return report;
  }
  report["cuda_version"] = fmt::format(
      "{}.{}",
      driver->cuda_version / 1000,
      driver->cuda_version % 1000 / 10);
  report["devices"] = OrderedJson::array();
  for (const auto& device : driver->devices) {
    report["devices"].push_back(
        {{"name", device.name},
         {"compute_capability",
          fmt::format("{}.{}", device.compute_major, device.compute_minor)},
         {"memory_bytes", device.memory_bytes},
         {"concurrent_managed_access", device.concurrent_managed_access}});
  }
  std::string wanted = driver->cuda_version >= 13000 ? "cuda13" : "cuda12";
  bool installed = false;
  for (const auto& candidate : runtime::find_candidates()) {
    installed = installed || candidate.variant.starts_with("cuda");
  }
  if (!installed) {
    missing.push_back(fmt::format(
        "MLX for the NVIDIA GPU: `mlxx runtime install {}`",
        wanted));
  }
  return report;
}

OrderedJson blas_report(OrderedJson& missing) {
  OrderedJson report = {{"path", ""}, {"note", ""}};
  auto in_use = runtime::blas_in_use();
  report["path"] = in_use.path.string();
  report["note"] = in_use.reason;
#ifdef __linux__
  bool is_openblas =
      in_use.path.filename().string().find("openblas") != std::string::npos;
  if (is_openblas) {
    report["note"] = "OPENBLAS_NUM_THREADS sets its threads";
  } else if (!in_use.path.empty()) {
    report["note"] = "MLX's own, slow for long prompts";
    auto setting = environment("MLXX_BLAS");
    if (!setting && environment("MLXX_KERNEL") != "fallback") {
      missing.push_back(
          "OpenBLAS, for prompts many times faster on the CPU: `apt install "
          "libopenblas0-pthread` or the package of your system");
    }
  }
#endif
  return report;
}

std::string text_or(const OrderedJson& object, const char* key) {
  auto found = object.find(key);
  return found == object.end() || !found->is_string()
      ? std::string()
      : found->get<std::string>();
}

void add_line(
    std::string& text,
    std::string_view name,
    std::string_view value) {
  text += fmt::format("{:<14} {}\n", name, value);
}

}  // namespace

OrderedJson host_report() {
  OrderedJson missing = OrderedJson::array();
  OrderedJson report;
  report["mlxx"] = {
      {"version", kBuildVersion},
      {"commit", kBuildCommit},
      {"compiler", kBuildCompiler},
      {"build_type", kBuildType}};
  auto loaded = loaded_libmlx();
  report["mlx"] = {
      {"built_against", std::string(runtime::built_against())},
      {"loaded", ""},
      {"path", loaded.string()},
      {"candidates", candidates_report(loaded)}};
  report["blas"] = blas_report(missing);
  report["nvidia"] = nvidia_report(missing);
  Processor processor = describe_processor();
  report["processor"] = {
      {"name", processor.name},
      {"threads", processor.threads},
      {"instruction_sets", processor.instruction_sets}};
  HostMemory memory = host_memory();
  report["memory"] = {
      {"total_bytes", memory.total_bytes},
      {"available_bytes", memory.available_bytes},
      {"limit_bytes", memory.limit_bytes}};
  try {
    report["home"] = mlxx_home().string();
  } catch (const Error& error) {
    report["home"] = "";
    missing.push_back(error.what());
  }
  report["missing"] = missing;
  return report;
}

std::string format_report(const OrderedJson& report) {
  std::string text;
  const auto& mlxx = report.at("mlxx");
  add_line(
      text,
      "mlxx",
      fmt::format(
          "{} (commit {}, {}, {})",
          text_or(mlxx, "version"),
          text_or(mlxx, "commit"),
          text_or(mlxx, "compiler"),
          text_or(mlxx, "build_type")));
  const auto& mlx = report.at("mlx");
  std::string loaded = text_or(mlx, "loaded");
  add_line(
      text,
      "MLX",
      fmt::format(
          "{}, built against {}",
          loaded.empty() ? "none loaded" : loaded,
          text_or(mlx, "built_against")));
  if (!loaded.empty()) {
    add_line(text, "libmlx", text_or(mlx, "path"));
  }
  for (const auto& candidate : mlx.at("candidates")) {
    std::string path = text_or(candidate, "path");
    std::string problem = text_or(candidate, "problem");
    bool is_used = candidate.at("in_use").get<bool>();
    add_line(
        text,
        "  candidate",
        fmt::format(
            "{} ({}{}{})",
            path,
            text_or(candidate, "origin"),
            problem.empty() && !is_used ? "" : ", ",
            is_used ? "in use" : problem));
  }
  const auto& blas = report.at("blas");
  std::string blas_path = text_or(blas, "path");
  std::string blas_note = text_or(blas, "note");
  add_line(
      text,
      "BLAS",
      blas_path.empty()
          ? blas_note
          : blas_path + (blas_note.empty() ? "" : " (" + blas_note + ")"));
  if (report.contains("device")) {
    add_line(text, "device", text_or(report, "device"));
  }
  if (report.contains("cuda_kernels")) {
    add_line(text, "CUDA kernels", text_or(report, "cuda_kernels"));
  }
  const auto& nvidia = report.at("nvidia");
  if (nvidia.contains("devices")) {
    for (const auto& device : nvidia.at("devices")) {
      bool concurrent = device.at("concurrent_managed_access").get<bool>();
      add_line(
          text,
          "NVIDIA GPU",
          fmt::format(
              "{}, compute {}, {}, driver for CUDA {}, {}",
              text_or(device, "name"),
              text_or(device, "compute_capability"),
              gib(device.at("memory_bytes").get<uint64_t>()),
              text_or(nvidia, "cuda_version"),
              concurrent
                  ? "managed memory shared with the CPU"
                  : "no concurrent managed memory (slow or failing in MLX)"));
    }
  } else {
    add_line(text, "NVIDIA GPU", "none: " + text_or(nvidia, "reason"));
  }
  const auto& processor = report.at("processor");
  add_line(
      text,
      "processor",
      fmt::format(
          "{}, {} threads",
          text_or(processor, "name"),
          processor.at("threads").get<int>()));
  add_line(
      text,
      "instructions",
      fmt::format(
          "{}",
          fmt::join(
              processor.at("instruction_sets").get<std::vector<std::string>>(),
              " ")));
  const auto& memory = report.at("memory");
  std::string memory_text = gib(memory.at("total_bytes").get<uint64_t>());
  if (uint64_t bytes = memory.at("available_bytes").get<uint64_t>()) {
    memory_text += ", " + gib(bytes) + " available";
  }
  if (uint64_t bytes = memory.at("limit_bytes").get<uint64_t>()) {
    memory_text += ", limited to " + gib(bytes);
  }
  add_line(text, "memory", memory_text);
  add_line(text, "home", text_or(report, "home"));
  if (report.contains("selftest")) {
    for (const auto& check : report.at("selftest")) {
      add_line(
          text,
          check.at("passed").get<bool>() ? "  passed" : "  FAILED",
          fmt::format(
              "{} ({})",
              text_or(check, "name"),
              text_or(check, "detail")));
    }
  }
  for (const auto& item : report.at("missing")) {
    add_line(text, "missing", item.get<std::string>());
  }
  if (std::string problem = text_or(report, "problem"); !problem.empty()) {
    add_line(text, "problem", problem);
  }
  return text;
}

int report_without_libmlx(const std::string& reason, bool as_json) {
  OrderedJson report = host_report();
  if (loaded_libmlx().empty()) {
    report["missing"].insert(
        report["missing"].begin(),
        fmt::format(
            "a libmlx {} that loads: `mlxx runtime install cpu`, or "
            "MLXX_LIBMLX",
            runtime::built_against()));
  }
  report["problem"] = reason;
  report["ok"] = false;
  print(as_json ? report.dump(2) + "\n" : format_report(report));
  return kExitFailure;
}

}  // namespace mlxx::apps
