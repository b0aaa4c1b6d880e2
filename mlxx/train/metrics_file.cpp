#include "mlxx/train/metrics_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <fcntl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "mlxx/base/atomic_file.h"
#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/train/trainer.h"

namespace mlxx::train {

namespace fs = std::filesystem;

namespace {

std::string text_of(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) +
      "\n";
}

MetricsLine line_of(const Json& json) {
  MetricsLine line;
  line.iteration = json.at("iteration").get<int64_t>();
  for (const auto& [name, value] : json.items()) {
    if (value.is_number() && name != "iteration") {
      line.numbers[name] = value.get<double>();
    }
  }
  return line;
}

}  // namespace

MetricsFile::MetricsFile(fs::path path, int64_t resumed_at)
    : path_(std::move(path)) {
  std::string kept;
  if (resumed_at >= 0) {
    std::ifstream old(path_);
    for (std::string line; std::getline(old, line);) {
      const Json json = Json::parse(line, nullptr, false);
      if (!json.is_object() || !json.contains("iteration") ||
          !json["iteration"].is_number_integer()) {
        continue;  // cut off
      }
      if (json["iteration"].get<int64_t>() <= resumed_at) {
        kept += line + "\n";
        lines_.push_back(line_of(json));
      }
    }
  }
  AtomicFile file(path_);
  file.write(std::span<const char>(kept));
  file.commit();
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor_ < 0) {
    fail(
        ErrorKind::internal,
        path_.string(),
        "cannot be written, {}",
        std::strerror(errno));
  }
}

MetricsFile::~MetricsFile() {
  ::close(descriptor_);
}

void MetricsFile::append(const std::string& line) {
  size_t done = 0;
  while (done < line.size()) {
    const auto written =
        ::write(descriptor_, line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      fail(
          ErrorKind::internal,
          path_.string(),
          "cannot be written, {}",
          std::strerror(errno));
    }
    done += static_cast<size_t>(written);
  }
}

void MetricsFile::add(const TrainReport& report) {
  OrderedJson json = {{"iteration", report.iteration}, {"loss", report.loss}};
  for (const auto& [name, value] : report.metrics) {
    json[name] = value;
  }
  json["learning_rate"] = report.learning_rate;
  json["gradient_norm"] = report.gradient_norm;
  json["tokens_per_second"] = report.tokens_per_second;
  json["iterations_per_second"] = report.iterations_per_second;
  json["trained_tokens"] = report.trained_tokens;
  json["skipped_batches"] = report.skipped_batches;
  json["peak_memory"] = report.peak_memory;
  append(text_of(json));
  lines_.push_back(line_of(json));
}

void MetricsFile::add(const Evaluation& validation) {
  OrderedJson json = {
      {"iteration", validation.iteration},
      {"validation_loss", validation.loss}};
  for (const auto& [name, value] : validation.metrics) {
    json["validation_" + name] = value;
  }
  json["validation_seconds"] = validation.seconds;
  json["validation_batches"] = validation.batches;
  json["skipped_batches"] = validation.skipped_batches;
  append(text_of(json));
  lines_.push_back(line_of(json));
}

void MetricsFile::add_sample(
    int64_t iteration,
    const std::string& prompt,
    const std::string& answer) {
  append(text_of(
      {{"iteration", iteration}, {"prompt", prompt}, {"sample", answer}}));
}

}  // namespace mlxx::train
