// mlxx fit with the default model.
#include <nlohmann/json.hpp>

#include "mlxx/base/json.h"
#include "tests/apps/child_process.h"
#include "tests/apps/default_model.h"

namespace mlxx::apps {
namespace {

class Fit : public DefaultModelTest {
 protected:
  ChildResult fit(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"fit", model_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_mlxx(arguments);
  }
  Json fit_json(std::vector<std::string> more, int exit_code = 0) {
    more.push_back("--json");
    auto result = fit(more);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    return Json::parse(result.out);
  }
};

TEST_F(Fit, PrintsTheContract) {
  auto result = fit({"--context", "2048", "--batch", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* part :
       {"2048 tokens of context, batch 2",
        "weights",
        "state",
        "total",
        "Fits",
        "Largest context with batch 2: 8192"}) {
    EXPECT_NE(result.out.find(part), std::string::npos) << part << result.out;
  }
}

TEST_F(Fit, TheSumIsTheParts) {
  Json json = fit_json({"--prompt-cache-bytes", "1MB"});
  EXPECT_EQ(json["context"], 4096);
  EXPECT_EQ(json["bytes"]["prefix_cache"], 1000000);
  uint64_t sum = 0;
  for (const char* part :
       {"weights", "state", "prefill", "logits", "prefix_cache", "adapters"}) {
    sum += json["bytes"][part].get<uint64_t>();
  }
  EXPECT_EQ(json["bytes"]["total"], sum);
  EXPECT_GT(sum, 80'000'000u);
}

TEST_F(Fit, WhatIsCalledLargestIsTheLastThatFits) {
  const std::vector<std::string> budget = {"--memory-budget", "300MB"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), budget.begin(), budget.end());
    return more;
  };
  Json json = fit_json(with({"--batch", "2"}), 0);
  const int context = json["largest_context"];
  EXPECT_GE(context, 4096);
  EXPECT_TRUE(json["fits"]);
  Json last =
      fit_json(with({"--batch", "2", "--context", std::to_string(context)}));
  EXPECT_TRUE(last["fits"]);
  Json over = fit_json(
      with({"--batch", "2", "--context", std::to_string(context + 1)}),
      1);
  EXPECT_FALSE(over["fits"]);
  Json none = fit_json({"--memory-budget", "1MB"}, 1);
  EXPECT_EQ(none["largest_context"], 0);
  EXPECT_EQ(none["largest_batch"], 0);
}

TEST_F(Fit, RefusesWhatItCannotMean) {
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"--context", "0"},
        {"--context", "8193"},
        {"--batch", "0"},
        {"--batch", "x"},
        {"--memory-budget", "much"},
        {"--memory-budget", "-1"},
        {"-m", "smollm2"}}) {
    auto result = fit(wrong);
    EXPECT_EQ(result.exit_code, 2) << wrong[0] << wrong[1];
    EXPECT_TRUE(is_error_line(result.err)) << result.err;
  }
}

}  // namespace
}  // namespace mlxx::apps
