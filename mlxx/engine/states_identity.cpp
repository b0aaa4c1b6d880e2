#include "mlxx/engine/states_identity.h"

#include <algorithm>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "mlxx/base/environment.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/base/sha256.h"
#include "mlxx/core/device.h"
#include "mlxx/kernels/cuda_plugin/cuda_plugin.h"
#include "mlxx/kernels/instruction_set.h"

namespace mlxx::engine {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSamples = 64;
constexpr size_t kSampleBytes = 4096;

bool decides(const fs::path& file) {
  return file.extension() == ".safetensors" || file.extension() == ".gguf" ||
      file.filename() == "config.json";
}

std::vector<fs::path> files_of(const fs::path& checkpoint) {
  if (!fs::is_directory(checkpoint)) {
    return {checkpoint};
  }
  std::vector<fs::path> files;
  for (const auto& at : fs::directory_iterator(checkpoint)) {
    if (at.is_regular_file() && decides(at.path())) {
      files.push_back(at.path());
    }
  }
  std::ranges::sort(files);
  return files;
}

void add_text(Sha256& sum, const std::string& text) {
  std::string line = fmt::format("{}:{}", text.size(), text);
  sum.update(std::as_bytes(std::span(line)));
}

void add_file(Sha256& sum, const fs::path& path) {
  MappedFile file(path);
  add_text(sum, path.filename().string());
  add_text(sum, fs::canonical(path).filename().string());
  add_text(
      sum,
      fmt::format(
          "{} {}",
          file.size(),
          fs::last_write_time(path).time_since_epoch().count()));
  auto bytes = file.bytes();
  // Where they begin does not depend on how large the last one is.
  size_t step = std::max(kSampleBytes, bytes.size() / kSamples);
  for (size_t at = 0; at < bytes.size(); at += step) {
    sum.update(bytes.subspan(at, std::min(kSampleBytes, bytes.size() - at)));
  }
}

}  // namespace

std::string states_identity(const fs::path& checkpoint) {
  Sha256 sum;
  for (const auto& file : files_of(checkpoint)) {
    add_file(sum, file);
  }
  for (const char* name : {"MLXX_KERNEL", "MLXX_CPU", "MLXX_CPU_ACTIVATIONS"}) {
    add_text(sum, environment(name).value_or(""));
  }
  // States on a device have another layout, which differs with the plug-in.
  add_text(sum, std::string(to_string(backend())));
  add_text(sum, kernels::cuda_plugin() ? "blocks of libmlxx_cuda" : "");
  auto best = kernels::available_instruction_sets().back();
  add_text(sum, std::string(kernels::to_string(best)));
  return sum.hex();
}

}  // namespace mlxx::engine
