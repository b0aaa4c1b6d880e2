// `mlxx train` as a user runs it.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/apps/child_process.h"
#include "tests/apps/default_model.h"
#include "tests/core/temporary_folder.h"

namespace mlxx::apps {
namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

class TrainTest : public DefaultModelTest {
 protected:
  void SetUp() override {
    DefaultModelTest::SetUp();
    std::string lines;
    for (int i = 0; i < 9; ++i) {
      lines += R"({"prompt": "zorp )" + std::to_string(i) +
          R"(", "completion": "blip )" + std::to_string(i * i) + "\"}\n";
    }
    folder_.write("data/train.jsonl", lines);
    folder_.write("data/valid.jsonl", lines.substr(0, lines.find('\n') + 1));
  }

  ChildOptions train(const std::string& name, std::vector<std::string> more)
      const {
    ChildOptions options;
    options.arguments = {
        "train",
        "-m",
        model_,
        "--data",
        path("data"),
        "--adapter-path",
        path(name),
        "--num-layers",
        "1",
        "--lora-rank",
        "2",
        "--batch-size",
        "2",
        "--mask-prompt",
        "--lora-dropout",
        "0.1",
        "--learning-rate",
        "1e-3",
        "--steps-per-report",
        "1",
        "--save-every",
        "2"};
    options.arguments.insert(options.arguments.end(), more.begin(), more.end());
    if (std::ranges::find(more, "--iters") == more.end()) {
      options.arguments.insert(options.arguments.end(), {"--iters", "6"});
    }
    return options;
  }
  std::string path(const std::string& name) const {
    return (folder_.path() / name).string();
  }

  TemporaryFolder folder_;
};

TEST_F(TrainTest, InterruptedRunGoesOnToTheSameFiles) {
  const auto whole = run_mlxx(train("whole", {"--plot"}));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_TRUE(content_of(path("whole/loss.svg")).starts_with("<svg"));
  for (const char* number : {"0000002", "0000004", "0000006"}) {
    EXPECT_TRUE(
        fs::exists(path("whole") + "/" + number + "_adapters.safetensors"));
  }
  EXPECT_EQ(
      content_of(path("whole/0000006_adapters.safetensors")),
      content_of(path("whole/adapters.safetensors")));
  EXPECT_NE(
      content_of(path("whole/0000004_adapters.safetensors")),
      content_of(path("whole/adapters.safetensors")));

  auto first = train("broken", {});
  // Somewhere in the middle of the reports.
  first.interrupt_after = static_cast<int>(whole.out.size() / 2);
  const auto stopped = run_mlxx(first);
  EXPECT_EQ(stopped.exit_code, 130) << stopped.out << stopped.err;
  const auto refused = run_mlxx(train("broken", {}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("--resume"), std::string::npos) << refused.err;
  const auto changed = run_mlxx(train("broken", {"--resume", "--seed", "5"}));
  EXPECT_EQ(changed.exit_code, 2);
  EXPECT_NE(changed.err.find("--seed"), std::string::npos) << changed.err;
  const auto rest = run_mlxx(train("broken", {"--resume"}));
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(
      content_of(path("broken/adapters.safetensors")),
      content_of(path("whole/adapters.safetensors")));
  const auto losses = [&](const std::string& name) {
    std::vector<std::string> found;
    std::istringstream lines(content_of(path(name + "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line);
      found.push_back(
          json.value("loss", json.value("validation_loss", nlohmann::json()))
              .dump());
    }
    return found;
  };
  EXPECT_EQ(losses("broken"), losses("whole"));
  EXPECT_GE(losses("whole").size(), 8u);
}

// Rows of the second epoch have other samples together than those of the first.
TEST_F(TrainTest, PackedRunGoesOnInTheNextEpoch) {
  const std::vector<std::string> packed = {"--pack", "--max-seq-length", "64"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), packed.begin(), packed.end());
    return more;
  };
  const auto whole = run_mlxx(train("whole", with({"--iters", "8"})));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  ASSERT_NE(whole.out.find(", 3 batches"), std::string::npos) << whole.out;
  const auto first = run_mlxx(train("broken", with({"--iters", "4"})));
  ASSERT_EQ(first.exit_code, 0) << first.err;
  auto rest = train("broken", with({"--iters", "8", "--resume"}));
  const auto second = run_mlxx(rest);
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(
      content_of(path("broken/adapters.safetensors")),
      content_of(path("whole/adapters.safetensors")));
  const auto again = run_mlxx(rest);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_NE((again.out + again.err).find("nothing is left"), std::string::npos)
      << again.out << again.err;
}

TEST_F(TrainTest, WhatCannotBeHonouredIsRefusedByName) {
  const auto refused = [&](std::vector<std::string> more,
                           const std::string& name) {
    const auto result = run_mlxx(train("refused", more));
    EXPECT_EQ(result.exit_code, 2) << name << result.out;
    EXPECT_TRUE(is_error_line(result.err)) << result.err;
    EXPECT_NE(result.err.find(name), std::string::npos) << result.err;
  };
  refused({"--beta", "1"}, "--beta");
  refused({"--full"}, "--lora-rank");
  refused({"--epochs", "1"}, "--epochs");
  refused({"--lr-schedule", "{}"}, "--lr-schedule");
  refused({"--optimizer-config", "{\"momentum\": 1}"}, "momentum");
  refused({"--segment-layers", "2"}, "--segment-layers");
  refused({"--method", "dpo"}, "--mask-prompt");
  const auto config = [&](const std::string& text, const std::string& name) {
    folder_.write("config.json", text);
    refused({"-c", path("config.json")}, name);
  };
  config(R"({"learning_rat": 1})", "learning_rat");
  config(R"({"batch_size": 4, "iters": -1, "val_batches": "x"})", "val_batch");
  config(R"({"report_to": "wandb"})", "report_to");
  config(R"({"lora_parameters": {"rnk": 4}})", "lora_parameters.rnk");
  EXPECT_FALSE(fs::exists(path("refused")));
}

TEST_F(TrainTest, ConfigFileOfMlxLmSetsWhatTheCommandLineDoesNot) {
  folder_.write(
      "config.json",
      R"({"train": true, "fine_tune_type": "dora", "iters": 3,
          "lora_parameters": {"rank": 7, "scale": 4.5, "dropout": 0.0,
                              "keys": ["self_attn.q_proj"]},
          "optimizer": "sgd", "optimizer_config": {"sgd": {"momentum": 0.5}},
          "report_to": null})");
  const auto result =
      run_mlxx(train("configured", {"-c", path("config.json"), "--dry-run"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(
      result.out.find("DoRA adapters of rank 2 in 1 layers"),
      std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("memory: "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("⟦blip"), std::string::npos) << result.out;
  EXPECT_FALSE(fs::exists(path("configured")));
}

}  // namespace
}  // namespace mlxx::apps
