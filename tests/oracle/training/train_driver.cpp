// train_driver REQUEST OUT: parts of training, for a comparison with mlx-lm,
// mlx.optimizers and formulas in NumPy. REQUEST is JSON with "kind" and
//   updates: "optimizer", "arguments", "schedule", "warmup", "steps", and
//     "arrays", a file with "value/NAME" and "gradient/STEP/NAME"; OUT has
//     "value/STEP/NAME" and "rate/STEP".
//   loss: "method", "beta", "lambda", "pairs" and "arrays" with "scores",
//     "targets" and "reference"; OUT has "loss", "gradient" and the metrics.
//   run: "model", "trained" ("lora", "dora" or "full"), "rank", "scale",
//     "recompute", "optimizer", "rate", "initial" (a file of values) and
//     "batches" of "tokens" and "targets"; OUT has "losses" and "value/NAME".
#include <cstdio>

#include <nlohmann/json.hpp>

#include "mlxx/base/json.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/core/autograd.h"
#include "mlxx/core/host_values.h"
#include "mlxx/core/safetensors_writer.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/models/load_trainable.h"
#include "mlxx/train/full_parameters.h"
#include "mlxx/train/lora.h"
#include "mlxx/train/trainer.h"

namespace mlxx {
namespace {

using Arrays = std::map<std::string, mx::array>;

Arrays read_arrays(const std::string& path) {
  const SafetensorsFile file(path);
  Arrays arrays;
  for (const auto& entry : file.entries()) {
    arrays.emplace(entry.name, file.load(entry));
  }
  return arrays;
}

train::ScheduleOptions schedule_of(const Json& request) {
  train::ScheduleOptions schedule;
  schedule.name = request.at("schedule").at("name").get<std::string>();
  schedule.arguments =
      request.at("schedule").at("arguments").get<std::vector<double>>();
  schedule.warmup = request.at("warmup").get<int64_t>();
  return schedule;
}

SafetensorsArrays updates(const Json& request) {
  const auto arrays = read_arrays(request.at("arrays").get<std::string>());
  std::vector<std::string> names;
  std::vector<mx::array> values;
  for (const auto& [name, array] : arrays) {
    if (name.starts_with("value/")) {
      names.push_back(name.substr(6));
      values.push_back(array);
    }
  }
  train::Optimizer optimizer(
      train::optimizer_options(
          request.at("optimizer").get<std::string>(),
          request.at("arguments")),
      names,
      values);
  const train::LearningRate rate(schedule_of(request));
  SafetensorsArrays out;
  for (int step = 0; step < request.at("steps").get<int>(); ++step) {
    const std::string number = std::to_string(step);
    std::vector<mx::array> gradients;
    for (const auto& name : names) {
      gradients.push_back(arrays.at("gradient/" + number + "/" + name));
    }
    const mx::array now = rate.at(optimizer.updates());
    values = optimizer.update(gradients, values, now);
    mx::eval(values);
    out.emplace_back("rate/" + number, now);
    for (size_t i = 0; i < names.size(); ++i) {
      out.emplace_back("value/" + number + "/" + names[i], values[i]);
    }
  }
  return out;
}

SafetensorsArrays loss(const Json& request) {
  const auto arrays = read_arrays(request.at("arrays").get<std::string>());
  const mx::array scores = arrays.at("scores");
  const HostValues<uint8_t> targets(arrays.at("targets"), "targets");
  data::Batch batch;
  batch.rows = scores.shape(0);
  batch.length = scores.shape(1);
  batch.tokens.assign(scores.size(), 1);
  batch.targets.assign(targets.span().begin(), targets.span().end());
  for (const auto& pair : request.at("pairs")) {
    batch.pairs.push_back({pair[0].get<int>(), pair[1].get<int>()});
  }
  const train::Objective objective(
      {train::method_of(request.at("method").get<std::string>()),
       request.at("beta").get<double>(),
       request.at("lambda").get<double>()});
  std::optional<mx::array> reference;
  if (auto found = arrays.find("reference"); found != arrays.end()) {
    reference = found->second;
  }
  const auto score_loss =
      objective.loss(batch, objective.count(batch), reference);
  const auto result =
      ValueAndGrad(
          [&](const std::vector<mx::array>& x) {
            return std::vector<mx::array>{score_loss(x[0]).loss};
          },
          {0})
          .apply({scores});
  SafetensorsArrays out = {
      {"loss", result.loss},
      {"gradient", result.gradients[0]}};
  for (const auto& [name, value] : score_loss(scores).metrics) {
    out.emplace_back(name, value);
  }
  return out;
}

class GivenBatches : public data::TrainingData {
 public:
  explicit GivenBatches(const Json& batches) {
    for (const auto& given : batches) {
      data::Batch batch;
      for (const auto& row : given.at("tokens")) {
        batch.length = static_cast<int>(row.size());
        batch.samples.push_back(batch.rows++);
        for (const auto& token : row) {
          batch.tokens.push_back(token.get<int32_t>());
        }
      }
      for (const auto& row : given.at("targets")) {
        for (const auto& target : row) {
          batch.targets.push_back(target.get<uint8_t>());
        }
      }
      batches_.push_back(std::move(batch));
    }
  }
  int64_t samples() const override {
    return batches_per_epoch();
  }
  int64_t batches_per_epoch() const override {
    return static_cast<int64_t>(batches_.size());
  }
  data::Batch batch(int64_t index) const override {
    return batches_.at(static_cast<size_t>(index) % batches_.size());
  }
  data::DataSummary summary() const override {
    return {};
  }
  int64_t largest_batch() const override {
    return 0;
  }
  std::string place(int64_t sample) const override {
    return "row " + std::to_string(sample);
  }

 private:
  std::vector<data::Batch> batches_;
};

class Losses : public train::TrainObserver {
 public:
  void on_step(const train::StepInfo& step) override {
    values.push_back(static_cast<float>(step.loss));
  }
  std::vector<float> values;
};

struct Trained {
  std::shared_ptr<const models::Model> model;
  std::unique_ptr<train::Trainable> values;
};

Trained trained_of(const Json& request) {
  const auto checkpoint =
      hub::open_checkpoint(request.at("model").get<std::string>());
  const auto kind = request.at("trained").get<std::string>();
  if (kind == "full") {
    const auto model = models::load_trainable_model(*checkpoint);
    return {
        model,
        std::make_unique<train::FullParameters>(model, train::FullOptions{})};
  }
  train::LoraOptions lora;
  lora.dora = kind == "dora";
  lora.rank = request.at("rank").get<int>();
  lora.scale = request.at("scale").get<double>();
  lora.num_layers = -1;
  const auto model = models::load_model(*checkpoint);
  return {model, std::make_unique<train::LoraAdapters>(model, lora)};
}

train::DifferentiateOptions way_of(const Json& request) {
  const auto name = request.at("recompute").get<std::string>();
  if (name == "segments") {
    return {.recompute = train::Recompute::segments, .segment_layers = 1};
  }
  return {
      .recompute = name == "checkpoint" ? train::Recompute::checkpoint
                                        : train::Recompute::none};
}

SafetensorsArrays run(const Json& request, const std::string& out_path) {
  const auto [model, trainable] = trained_of(request);
  const auto initial = read_arrays(request.at("initial").get<std::string>());
  std::vector<mx::array> values;
  for (const auto& name : trainable->names()) {
    values.push_back(initial.at(name));
  }
  trainable->set_values(values);
  const auto differentiator =
      train::make_differentiator(*model, *trainable, way_of(request));
  const GivenBatches data(request.at("batches"));
  train::TrainOptions options;
  options.optimizer = train::optimizer_options(
      request.at("optimizer").get<std::string>(),
      Json::object());
  options.schedule.arguments = {request.at("rate").get<double>()};
  options.iterations = data.batches_per_epoch();
  options.save_every = 1 << 20;
  train::Trainer::Parts parts;
  parts.trainable = trainable.get();
  parts.differentiator = differentiator.get();
  parts.data = &data;
  const train::CheckpointFolder checkpoints(out_path + ".checkpoints");
  train::Trainer trainer(parts, options, checkpoints, false);
  Losses losses;
  trainer.run(losses);
  SafetensorsArrays out = {
      {"losses",
       mx::array(
           losses.values.begin(),
           {static_cast<int>(losses.values.size())},
           mx::float32)}};
  for (size_t i = 0; i < trainable->names().size(); ++i) {
    out.emplace_back("value/" + trainable->names()[i], trainable->values()[i]);
  }
  return out;
}

}  // namespace
}  // namespace mlxx

int main(int argc, char** argv) {
  using namespace mlxx;
  if (argc != 3) {
    return 2;
  }
  try {
    const Json request =
        parse_json(read_file(argv[1], size_t{1} << 24), "request");
    const auto kind = request.at("kind").get<std::string>();
    write_safetensors(
        argv[2],
        kind == "updates"    ? updates(request)
            : kind == "loss" ? loss(request)
                             : run(request, argv[2]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
