#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/apps/child_process.h"
#include "tests/apps/default_model.h"

// `mlxx bench` with the default model.

namespace mlxx::apps {
namespace {

using Json = nlohmann::json;

class Bench : public DefaultModelTest {
 protected:
  ChildResult run(std::vector<std::string> more) {
    std::vector<std::string> arguments{"bench", "-m", model_, "-r", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_mlxx(arguments);
  }
};

// The times of each kind of operation add up to the whole.
void expect_sound(const Json& profile, const char* step) {
  SCOPED_TRACE(step);
  double ms = 0;
  double percent = 0;
  double last = 1e9;
  ASSERT_FALSE(profile["ops"].empty());
  for (const auto& op : profile["ops"]) {
    EXPECT_GE(op["count"].get<double>(), 0.25);
    EXPECT_LE(op["ms"].get<double>(), last);
    last = op["ms"].get<double>();
    ms += last;
    percent += op["percent"].get<double>();
  }
  EXPECT_NEAR(profile["ms"].get<double>(), ms, 1e-6 * ms);
  EXPECT_NEAR(percent, 100, 1e-6);
}

TEST_F(Bench, ProfilesAPromptAndDecoding) {
  auto result = run({"-p", "8", "-n", "4", "--profile", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  Json report = Json::parse(result.out);
  EXPECT_GT(report["decode_tok_s"].get<double>(), 0);
  const Json& profile = report["profile"];
  EXPECT_GT(profile["overhead_ms_per_op"].get<double>(), 0);
  EXPECT_EQ(profile["prefill"]["tokens"], 8);
  EXPECT_EQ(profile["decode"]["steps"], 4);
  expect_sound(profile["prefill"], "prefill");
  expect_sound(profile["decode"], "decode");
}

TEST_F(Bench, ProfilesOnlyWhatIsMeasured) {
  auto result =
      run({"-p", "0", "-n", "2", "--profile", "--prefill-step-size", "4"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("decode, mean of 2 steps: "), std::string::npos);
  EXPECT_EQ(result.out.find("prompt, a chunk"), std::string::npos);
  result = run({"-p", "6", "-n", "0", "--profile", "--prefill-step-size", "4"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(
      result.out.find("prompt, a chunk of 4 tokens: "),
      std::string::npos);
  EXPECT_EQ(result.out.find("decode, mean"), std::string::npos);
}

TEST_F(Bench, SaysNothingOfOperationsUnasked) {
  auto result = run({"-p", "2", "-n", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out.find("operations"), std::string::npos);
  result = run({"-p", "2", "-n", "2", "--json"});
  EXPECT_FALSE(Json::parse(result.out).contains("profile"));
}

}  // namespace
}  // namespace mlxx::apps
