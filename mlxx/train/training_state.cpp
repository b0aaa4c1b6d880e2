#include "mlxx/train/training_state.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/atomic_file.h"
#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/base/sha256.h"
#include "mlxx/base/staging_folder.h"
#include "mlxx/core/safetensors.h"
#include "mlxx/core/safetensors_writer.h"

namespace mlxx::train {

namespace fs = std::filesystem;

namespace {

constexpr const char* kWeights = "weights.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kState = "state.json";
constexpr int kFormat = 1;
constexpr int64_t kMost = int64_t{1} << 53;  // what JSON holds exactly

std::string digest(const std::string& text) {
  return sha256_hex(std::as_bytes(std::span(text)));
}

// A rename is on the disk only once its folder is.
void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (descriptor >= 0) {
    ::fsync(descriptor);
    ::close(descriptor);
  }
}

std::optional<int64_t> iteration_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  int64_t iteration = 0;
  const auto* end = name.data() + name.size();
  auto [stopped, error] = std::from_chars(name.data(), end, iteration);
  if (name.empty() || error != std::errc() || stopped != end || iteration < 0) {
    return std::nullopt;
  }
  return iteration;
}

fs::path folder_of(const fs::path& parent, int64_t iteration) {
  return parent / fmt::format("{:07d}", iteration);
}

Json json_of(const RunProgress& progress) {
  Json json = {
      {"iteration", progress.iteration},
      {"updates", progress.updates},
      {"trained_tokens", progress.trained_tokens},
      {"skipped_batches", progress.skipped_batches},
      {"loss_sum", progress.loss_sum},
      {"count_sum", progress.count_sum},
      {"metric_sums", progress.metric_sums},
      {"report_tokens", progress.report_tokens},
      {"report_iterations", progress.report_iterations},
      {"report_seconds", progress.report_seconds},
      {"best_loss", nullptr},
      {"best_iteration", progress.best_iteration},
      {"validations_since_best", progress.validations_since_best},
      {"stopped_early", progress.stopped_early}};
  if (progress.best_loss) {
    json["best_loss"] = *progress.best_loss;
  }
  return json;
}

RunProgress progress_of(const JsonView& view) {
  RunProgress progress;
  const auto count = [&](const char* key) {
    return view.integer(key, 0, kMost);
  };
  progress.iteration = count("iteration");
  progress.updates = count("updates");
  progress.trained_tokens = count("trained_tokens");
  progress.skipped_batches = count("skipped_batches");
  progress.loss_sum = view.number("loss_sum");
  progress.count_sum = view.number("count_sum");
  const JsonView metrics = view.object("metric_sums");
  for (const auto& [name, value] : metrics.json().items()) {
    progress.metric_sums[name] = metrics.number(name);
  }
  progress.report_tokens = count("report_tokens");
  progress.report_iterations = count("report_iterations");
  progress.report_seconds = view.number("report_seconds");
  if (view.has("best_loss")) {
    progress.best_loss = view.number("best_loss");
  }
  progress.best_iteration = count("best_iteration");
  progress.validations_since_best = count("validations_since_best");
  progress.stopped_early = view.boolean("stopped_early");
  return progress;
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file) {
    fail(ErrorKind::bad_file, path.string(), "cannot be read");
  }
  return content.str();
}

NamedArrays read_arrays(const fs::path& path, const std::string& checksum) {
  if (sha256_of_file(path) != checksum) {
    fail(
        ErrorKind::bad_file,
        path.string(),
        "is damaged, its checksum is another one");
  }
  const SafetensorsFile file(path);
  NamedArrays arrays;
  for (const auto& entry : file.entries()) {
    arrays.emplace_back(entry.name, file.load(entry));
  }
  return arrays;
}

}  // namespace

CheckpointFolder::CheckpointFolder(fs::path folder)
    : folder_(std::move(folder)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error || !fs::is_directory(folder_)) {
    fail(
        ErrorKind::internal,
        folder_.string(),
        "cannot be made, {}",
        error ? error.message() : "something else is there");
  }
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().filename().string().starts_with(".staging-")) {
      std::error_code ignored;
      fs::remove_all(entry.path(), ignored);
    }
  }
}

std::vector<int64_t> CheckpointFolder::iterations() const {
  std::vector<int64_t> iterations;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (auto iteration = iteration_of(entry.path())) {
      iterations.push_back(*iteration);
    }
  }
  std::sort(iterations.begin(), iterations.end());
  return iterations;
}

fs::path CheckpointFolder::save(const TrainingState& state, int keep) const {
  StagingFolder staging(folder_);
  const fs::path inner = staging.path() / "new";
  fs::create_directory(inner);
  write_safetensors(inner / kWeights, state.weights);
  write_safetensors(inner / kOptimizer, state.optimizer);
  Json content = {
      {"format", kFormat},
      {"progress", json_of(state.progress)},
      {"options", state.options},
      {"environment", state.environment},
      {"weights_sha256", sha256_of_file(inner / kWeights)},
      {"optimizer_sha256", sha256_of_file(inner / kOptimizer)}};
  const Json whole = {
      {"content", content},
      {"content_sha256", digest(content.dump())}};
  AtomicFile file(inner / kState);
  file.write(std::span<const char>(whole.dump(2) + "\n"));
  file.commit();
  const fs::path target = folder_of(folder_, state.progress.iteration);
  staging.publish(inner, target);
  sync_folder(folder_);

  auto all = iterations();
  const auto kept = static_cast<size_t>(std::max(keep, 1));
  for (size_t i = 0; i + kept < all.size(); ++i) {
    std::error_code ignored;
    fs::remove_all(folder_of(folder_, all[i]), ignored);
  }
  return target;
}

TrainingState CheckpointFolder::read(int64_t iteration) const {
  const fs::path folder = folder_of(folder_, iteration);
  const std::string place = (folder / kState).string();
  const Json whole = parse_json(read_file(place), place);
  const JsonView outer(whole, place);
  const JsonView view = outer.object("content");
  if (digest(view.json().dump()) != outer.string("content_sha256")) {
    fail(ErrorKind::bad_file, place, "is damaged, its checksum is another one");
  }
  if (const auto format = view.integer("format", 0, kMost); format != kFormat) {
    fail(
        ErrorKind::unsupported,
        place,
        "is of format {}, this program reads {}",
        format,
        kFormat);
  }
  TrainingState state;
  state.progress = progress_of(view.object("progress"));
  const JsonView options = view.object("options");
  for (const auto& [name, value] : options.json().items()) {
    state.options[name] = options.string(name);
  }
  if (view.has("environment")) {
    const JsonView environment = view.object("environment");
    for (const auto& [name, value] : environment.json().items()) {
      state.environment[name] = environment.string(name);
    }
  }
  state.weights = read_arrays(folder / kWeights, view.string("weights_sha256"));
  state.optimizer =
      read_arrays(folder / kOptimizer, view.string("optimizer_sha256"));
  return state;
}

std::optional<TrainingState> CheckpointFolder::newest(
    std::vector<std::string>& damaged) const {
  auto all = iterations();
  for (auto iteration = all.rbegin(); iteration != all.rend(); ++iteration) {
    try {
      return read(*iteration);
    } catch (const Error& error) {
      damaged.emplace_back(error.what());
    }
  }
  return std::nullopt;
}

void CheckpointFolder::clear() const {
  for (int64_t iteration : iterations()) {
    std::error_code error;
    fs::remove_all(folder_of(folder_, iteration), error);
    if (error) {
      fail(
          ErrorKind::internal,
          folder_of(folder_, iteration).string(),
          "cannot be removed, {}",
          error.message());
    }
  }
}

std::vector<std::string> environment_changes(
    const std::map<std::string, std::string>& saved,
    const std::map<std::string, std::string>& now) {
  std::vector<std::string> changes;
  for (const auto& [name, value] : now) {
    const auto before = saved.find(name);
    if (before != saved.end() && before->second != value) {
      changes.push_back(fmt::format(
          "{} is {} now, the checkpoint was made with {}: the last bits may "
          "differ from those of an unbroken run",
          name,
          value,
          before->second));
    }
  }
  return changes;
}

void require_same_options(
    const std::map<std::string, std::string>& saved,
    const std::map<std::string, std::string>& now) {
  const auto value = [](const auto& options, const std::string& name) {
    auto found = options.find(name);
    return found == options.end() ? std::string("nothing") : found->second;
  };
  std::map<std::string, std::string> all = saved;
  all.insert(now.begin(), now.end());
  for (const auto& [name, ignored] : all) {
    const std::string before = value(saved, name);
    const std::string after = value(now, name);
    if (before != after) {
      fail(
          ErrorKind::invalid_request,
          "--resume",
          "{} is {} now, the checkpoint was made with {}",
          name,
          after,
          before);
    }
  }
}

}  // namespace mlxx::train
