// The loop of training, on a model of two matrices.
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "mlxx/core/host_values.h"
#include "mlxx/core/memory.h"
#include "mlxx/core/safetensors.h"
#include "mlxx/train/metrics_file.h"
#include "tests/core/error_of.h"
#include "tests/core/temporary_folder.h"
#include "tests/train/toy_run.h"

namespace mlxx::train {
namespace {

namespace fs = std::filesystem;

std::vector<float> numbers(const mx::array& array) {
  const HostValues<float> values(array, "test");
  return {values.span().begin(), values.span().end()};
}

std::vector<std::vector<float>> weights(const ToyModel& model) {
  return {numbers(model.values()[0]), numbers(model.values()[1])};
}

struct Recorder : TrainObserver {
  void on_step(const StepInfo& step) override {
    steps.push_back(step);
    if (at_step) {
      at_step(step);
    }
  }
  void on_report(const TrainReport& report) override {
    reports.push_back(report);
  }
  void on_validation(const Evaluation& validation) override {
    validations.push_back(validation);
  }
  std::vector<StepInfo> steps;
  std::vector<TrainReport> reports;
  std::vector<Evaluation> validations;
  std::function<void(const StepInfo&)> at_step;
};

class TrainerTest : public testing::Test {
 protected:
  ToyRun make(const std::string& name) const {
    return ToyRun(folder_.path() / name);
  }
  TemporaryFolder folder_;
};

TEST_F(TrainerTest, LossFallsAndReportsAreMeansOverTokens) {
  auto run = make("a");
  run.options.iterations = 60;
  run.model.dropout = false;
  Recorder recorder;
  EXPECT_EQ(run.run(recorder, false), TrainEnd::finished);
  ASSERT_EQ(recorder.reports.size(), 12u);
  EXPECT_LT(recorder.reports.back().loss, 0.6 * recorder.reports[0].loss);
  EXPECT_LT(recorder.validations.back().loss, recorder.validations[0].loss);
  double sum = 0;
  double tokens = 0;
  for (int i = 0; i < 5; ++i) {
    sum += recorder.steps[i].loss * recorder.steps[i].tokens;
    tokens += recorder.steps[i].tokens;
  }
  EXPECT_NEAR(recorder.reports[0].loss, sum / tokens, 1e-9);
  EXPECT_EQ(recorder.validations[0].iteration, 0);
  EXPECT_EQ(recorder.validations[1].iteration, 6);
}

TEST_F(TrainerTest, LargestBatchIsTriedFirstAndChangesNothing) {
  auto run = make("a");
  Recorder recorder;
  run.run(recorder, false);
  const int largest = *std::max_element(
      run.differentiator.tokens.begin(),
      run.differentiator.tokens.end());
  EXPECT_EQ(run.differentiator.tokens[0], largest);
  EXPECT_EQ(run.differentiator.calls, 1 + run.options.iterations);
}

// A run that is stopped anywhere and taken up gives the same bits, reports
// included.
TEST_F(TrainerTest, ResumedRunIsTheUnbrokenOne) {
  auto whole = make("whole");
  Recorder expected;
  whole.run(expected, false);
  for (int stop : {1, 4, 7, 23}) {
    const std::string name = "stopped" + std::to_string(stop);
    Recorder recorder;
    {
      auto first = make(name);
      int done = 0;
      recorder.at_step = [&](const StepInfo&) { ++done; };
      first.parts.is_cancelled = [&] { return done >= stop; };
      EXPECT_EQ(first.run(recorder, false), TrainEnd::cancelled);
    }
    auto second = make(name);
    EXPECT_EQ(second.run(recorder, true), TrainEnd::finished);
    EXPECT_EQ(weights(second.model), weights(whole.model)) << stop;
    ASSERT_EQ(recorder.steps.size(), expected.steps.size());
    for (size_t i = 0; i < expected.steps.size(); ++i) {
      EXPECT_EQ(recorder.steps[i].loss, expected.steps[i].loss) << i;
    }
    ASSERT_EQ(recorder.reports.size(), expected.reports.size());
    for (size_t i = 0; i < expected.reports.size(); ++i) {
      EXPECT_EQ(recorder.reports[i].loss, expected.reports[i].loss) << i;
    }
    auto progress = second.progress;
    progress.report_seconds = whole.progress.report_seconds;
    EXPECT_EQ(progress, whole.progress);
  }
}

// Ends the process after a random time.
bool killed(const fs::path& folder, std::chrono::microseconds after) {
  const pid_t child = fork();
  if (child == 0) {
    execl(MLXX_KILLED_RUN, "killed_run", folder.c_str(), nullptr);
    _exit(127);
  }
  std::this_thread::sleep_for(after);
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) != 0);
  return !WIFEXITED(status);
}

std::vector<std::vector<float>> final_weights(const fs::path& folder) {
  std::vector<std::vector<float>> found;
  const SafetensorsFile file(folder / "final.safetensors");
  for (const auto& entry : file.entries()) {
    found.push_back(numbers(file.load(entry)));
  }
  return found;
}

TEST_F(TrainerTest, KilledRunsGoOnToTheSameBits) {
  const auto run_whole = [](const fs::path& folder) {
    const std::string command =
        std::string(MLXX_KILLED_RUN) + " " + folder.string();
    EXPECT_EQ(std::system(command.c_str()), 0);
  };
  const fs::path whole = folder_.path() / "whole";
  const fs::path broken = folder_.path() / "broken";
  fs::create_directories(whole);
  fs::create_directories(broken);
  const auto start = std::chrono::steady_clock::now();
  run_whole(whole);
  const auto duration = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now() - start);
  std::mt19937 random(11);
  int kills = 0;
  std::set<int64_t> reached;
  for (int attempt = 0; attempt < 12; ++attempt) {
    const double share =
        0.3 + 0.4 * static_cast<double>(random() % 1000) / 1000;
    kills += killed(
        broken,
        std::chrono::microseconds(static_cast<int64_t>(
            share * static_cast<double>(duration.count()))));
    if (fs::exists(broken / "final.safetensors")) {
      break;
    }
    for (int64_t iteration :
         CheckpointFolder(broken / "checkpoints").iterations()) {
      reached.insert(iteration);
    }
  }
  EXPECT_GE(kills, 1);
  EXPECT_FALSE(reached.empty());
  run_whole(broken);
  EXPECT_EQ(final_weights(broken), final_weights(whole));
}

TEST_F(TrainerTest, DamagedCheckpointIsPassedOver) {
  auto whole = make("whole");
  Recorder recorder;
  whole.run(recorder, false);
  for (const char* file :
       {"weights.safetensors", "optimizer.safetensors", "state.json"}) {
    auto first = make(file);
    first.options.iterations = 12;
    first.run(recorder, false);
    const fs::path newest = first.folder / "checkpoints" / "0000012" / file;
    std::fstream damaged(newest, std::ios::in | std::ios::out);
    damaged.seekp(static_cast<std::streamoff>(fs::file_size(newest) - 40));
    damaged.write("7", 1);
    damaged.close();
    auto second = make(file);
    second.run(recorder, true);
    ASSERT_EQ(second.notes.size(), 1u) << file;
    EXPECT_NE(second.notes[0].find(file), std::string::npos);
    EXPECT_EQ(weights(second.model), weights(whole.model)) << file;
  }
}

TEST_F(TrainerTest, ChangedOptionIsRefusedByName) {
  auto first = make("a");
  first.options.iterations = 4;
  first.options.identity["--batch-size"] = "4";
  Recorder recorder;
  first.run(recorder, false);
  const auto refused = [&](auto change, const std::string& name) {
    auto second = make("a");
    second.options.identity["--batch-size"] = "4";
    change(second.options);
    EXPECT_ERROR(second.run(recorder, true), "invalid_request", name);
  };
  refused([](auto& o) { o.identity["--batch-size"] = "8"; }, "--batch-size");
  refused([](auto& o) { o.seed = 4; }, "--seed is 4 now");
  refused([](auto& o) { o.schedule.arguments = {1}; }, "learning rate");
  refused([](auto& o) { o.optimizer.name = "sgd"; }, "--optimizer");
  refused([](auto& o) { o.optimizer.bias_correction = true; }, "optimizer_con");
  refused([](auto& o) { o.accumulation = 2; }, "--grad-accumulation-steps");
  auto more = make("a");
  more.options.identity["--batch-size"] = "4";
  more.options.iterations = 8;
  more.options.report_every = 1;
  EXPECT_EQ(more.run(recorder, true), TrainEnd::finished);
}

TEST_F(TrainerTest, AccumulationIsTheBigBatch) {
  const auto ran = [&](int batch_size, int accumulation, Method method) {
    auto run = make(std::to_string(batch_size) + to_string(method));
    const bool pairs = method != Method::sft;
    run.data = ToyData(
        {.samples = 24,
         .batch_size = batch_size,
         .longest = 100,
         .pairs = pairs});
    run.with_validation = false;
    run.model.dropout = false;
    run.options.objective.method = method;
    run.options.optimizer.name = "sgd";
    run.options.accumulation = accumulation;
    run.options.iterations = 24 / batch_size * 2;
    Recorder recorder;
    run.run(recorder, false);
    EXPECT_EQ(run.progress.updates, 8);
    return weights(run.model);
  };
  for (Method method : {Method::sft, Method::dpo, Method::orpo}) {
    const auto big = ran(6, 1, method);
    const auto small = ran(1, 6, method);
    for (size_t i = 0; i < big.size(); ++i) {
      for (size_t j = 0; j < big[i].size(); ++j) {
        EXPECT_NEAR(small[i][j], big[i][j], 2e-5) << to_string(method);
      }
    }
  }
}

TEST_F(TrainerTest, BatchWithoutTargetsIsSkippedAndCounted) {
  auto run = make("a");
  run.data = ToyData({.samples = 6, .batch_size = 1, .without_targets = 2});
  run.validation =
      ToyData({.samples = 4, .batch_size = 1, .without_targets = 0});
  run.options.iterations = 12;
  Recorder recorder;
  run.run(recorder, false);
  EXPECT_EQ(run.progress.skipped_batches, 2);
  EXPECT_EQ(run.progress.updates, 10);
  EXPECT_EQ(recorder.validations.back().skipped_batches, 1);
  EXPECT_EQ(recorder.validations.back().batches, 3);
  for (const auto& step : recorder.steps) {
    EXPECT_TRUE(std::isfinite(step.loss));
  }
  for (const auto& validation : recorder.validations) {
    EXPECT_TRUE(std::isfinite(validation.loss));
  }

  auto nothing = make("b");
  nothing.data = ToyData({.samples = 1, .batch_size = 1, .without_targets = 0});
  EXPECT_ERROR(
      nothing.run(recorder, false),
      "invalid_request",
      "anything to learn");
}

// As when the learning rate is far too high.
TEST_F(TrainerTest, LossThatIsNotFiniteEndsTheRunNamingTheSample) {
  auto run = make("a");
  run.options.iterations = 500;
  run.options.schedule.arguments = {1e30};
  run.options.schedule.warmup = 0;
  run.options.clip = 0;
  run.options.save_every = 1000;
  run.with_validation = false;
  Recorder recorder;
  EXPECT_ERROR(run.run(recorder, false), "internal", "toy.jsonl: line ");
  // The weights before it are kept, and finite.
  const CheckpointFolder checkpoints(run.folder / "checkpoints");
  const auto kept = checkpoints.iterations();
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0], static_cast<int64_t>(recorder.steps.size()));
  for (const auto& [name, value] : checkpoints.read(kept[0]).weights) {
    for (float number : numbers(value)) {
      EXPECT_TRUE(std::isfinite(number)) << name;
    }
  }
}

TEST_F(TrainerTest, EarlyStopKeepsTheBestWeights) {
  auto run = make("a");
  run.options.iterations = 200;
  run.options.validate_every = 2;
  run.options.patience = 3;
  run.options.schedule.arguments = {0.4};
  run.options.clip = 0;
  std::vector<std::vector<float>> best;
  run.parts.save_weights = [&](const std::string& which, int64_t) {
    if (which == "best") {
      best = weights(run.model);
    }
  };
  Recorder recorder;
  std::map<int64_t, std::vector<std::vector<float>>> seen;
  recorder.at_step = [&](const StepInfo& step) {
    seen[step.iteration] = weights(run.model);
  };
  EXPECT_EQ(run.run(recorder, false), TrainEnd::stopped_early);
  EXPECT_LT(run.progress.iteration, 200);
  EXPECT_EQ(run.progress.validations_since_best, 3);
  double least = INFINITY;
  int64_t at = 0;
  for (const auto& validation : recorder.validations) {
    if (validation.loss < least) {
      least = validation.loss;
      at = validation.iteration;
    }
  }
  EXPECT_EQ(run.progress.best_iteration, at);
  ASSERT_GT(at, 0);
  EXPECT_EQ(best, seen[at]);
  // It stays ended.
  auto again = make("a");
  again.options = run.options;
  EXPECT_EQ(again.run(recorder, true), TrainEnd::stopped_early);
}

TEST_F(TrainerTest, GoingOnElsewhereIsSaid) {
  auto first = make("a");
  first.options.iterations = 8;
  first.options.environment = {{"MLXX_THREADS", "2"}, {"MLX", "1.0"}};
  Recorder recorder;
  first.run(recorder, false);
  auto same = make("a");
  same.options.iterations = 12;
  same.options.environment = first.options.environment;
  same.run(recorder, true);
  EXPECT_TRUE(same.notes.empty());
  auto other = make("a");
  other.options.iterations = 16;
  other.options.environment = {
      {"MLXX_THREADS", "4"},
      {"MLX", "1.0"},
      {"device", "cpu"}};
  EXPECT_EQ(other.run(recorder, true), TrainEnd::finished);
  EXPECT_EQ(
      other.notes,
      std::vector<std::string>{
          "MLXX_THREADS is 4 now, the checkpoint was made with 2: the last "
          "bits may differ from those of an unbroken run"});
  CheckpointFolder checkpoints(other.folder / "checkpoints");
  EXPECT_EQ(checkpoints.read(16).environment, other.options.environment);
}

TEST_F(TrainerTest, MemoryStaysFlatOverRandomLengths) {
  auto run = make("a");
  run.data = ToyData({.samples = 120, .batch_size = 1, .longest = 2000});
  run.with_validation = false;
  run.options.iterations = 120;
  run.options.save_every = 1000;
  Recorder recorder;
  std::vector<size_t> active;
  reset_peak_memory();
  size_t after_first = 0;
  recorder.at_step = [&](const StepInfo& step) {
    active.push_back(memory_use().active);
    if (step.iteration == 1) {
      after_first = memory_use().peak;
    }
  };
  run.run(recorder, false);
  EXPECT_LE(active.back(), active[5] + 4096);
  // The largest batch came first.
  EXPECT_LE(memory_use().peak, after_first + after_first / 8);
}

// Asked once and kept, or asked each time: the same; and what is kept is only
// for the run that it was made for.
TEST_F(TrainerTest, KeptReferenceIsTheLiveOne) {
  ToyModel model;
  const ToyDifferentiator differentiator(model);
  const ToyData data({.samples = 8, .batch_size = 2, .pairs = true});
  const Objective objective({.method = Method::dpo});
  const auto live = live_reference(objective, differentiator);
  const fs::path file = folder_.path() / "reference.safetensors";
  int asked = 0;
  const auto keep = [&](const std::string& identity, bool untrained) {
    return kept_reference(
        objective,
        differentiator,
        data,
        file,
        identity,
        untrained,
        [&](int64_t, int64_t) { ++asked; });
  };
  const auto expect_live = [&](const ReferenceScores& kept) {
    for (int64_t i = 0; i < 2 * data.batches_per_epoch(); ++i) {
      const auto batch = data.batch(i);
      const auto a = numbers(live->of(batch));
      const auto b = numbers(kept.of(batch));
      for (size_t j = 0; j < a.size(); ++j) {
        EXPECT_NEAR(a[j], b[j], 1e-5);
      }
    }
  };
  expect_live(*keep("one", true));
  EXPECT_EQ(asked, 4);
  // Training changes the model, not what it said before.
  model.set_values(
      {mx::add(model.values()[0], mx::array(1.0f)), model.values()[1]});
  expect_live(*keep("one", true));
  EXPECT_EQ(asked, 4);
  expect_live(*keep("another", false));
  EXPECT_EQ(asked, 8);
  data::Batch foreign = data.batch(0);
  foreign.samples.assign(foreign.samples.size(), 70);
  EXPECT_ERROR(keep("another", false)->of(foreign), "bad_file", "sample 70");
}

TEST_F(TrainerTest, MetricsFileForgetsWhatComesAgain) {
  const fs::path path = folder_.path() / "metrics.jsonl";
  {
    MetricsFile file(path, -1);
    for (int64_t iteration : {10, 20, 30}) {
      TrainReport report;
      report.iteration = iteration;
      report.loss = 3.0 / static_cast<double>(iteration);
      file.add(report);
      Evaluation validation;
      validation.iteration = iteration;
      validation.loss = 0.5;
      file.add(validation);
    }
  }
  std::ofstream(path, std::ios::app) << R"({"iteration": 4)";  // cut off
  MetricsFile file(path, 20);
  ASSERT_EQ(file.lines().size(), 4u);
  EXPECT_EQ(file.lines().back().iteration, 20);
  const std::string plot = loss_plot(file.lines());
  EXPECT_TRUE(plot.starts_with("<svg ")) << plot;
  EXPECT_NE(plot.find("validation loss"), std::string::npos);
  EXPECT_EQ(plot.find("nan"), std::string::npos);
  EXPECT_TRUE(loss_plot({}).starts_with("<svg "));
}

}  // namespace
}  // namespace mlxx::train
