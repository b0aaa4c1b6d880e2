#include "apps/mlxx/bench_profile.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace mlxx::apps {
namespace {

BenchProfile example() {
  BenchProfile profile;
  profile.overhead = 1e-5;
  profile.prefill = StepProfile{
      {{{"Matmul", 3, 0.003, 2'000'000}, {"Add", 1, 0.001, 1000}}},
      1,
      64};
  profile.decode = StepProfile{{{{"Matmul", 8, 0.002, 4'000'000}}}, 4, 4};
  return profile;
}

TEST(BenchProfile, PrintsOneStepOfEach) {
  EXPECT_EQ(
      format_bench_profile(example()),
      "\n"
      "prompt, a chunk of 64 tokens: 4.00 ms in 4 operations run one by one, "
      "about 0.04 ms of it to start them and wait\n"
      "operation                  count        ms   share        MB\n"
      "Matmul                         3     3.000  75.0 %       2.0\n"
      "Add                            1     1.000  25.0 %       0.0\n"
      "\n"
      "decode, mean of 4 steps: 0.50 ms in 2 operations run one by one, about "
      "0.02 ms of it to start them and wait\n"
      "operation                  count        ms   share        MB\n"
      "Matmul                         2     0.500 100.0 %       1.0\n");
}

TEST(BenchProfile, HasTheSameInJson) {
  Json json = bench_profile_json(example());
  EXPECT_NEAR(json["overhead_ms_per_op"].get<double>(), 0.01, 1e-12);
  EXPECT_EQ(json["prefill"]["tokens"], 64);
  EXPECT_EQ(json["prefill"]["steps"], 1);
  EXPECT_DOUBLE_EQ(json["prefill"]["ms"].get<double>(), 4);
  const Json& decode = json["decode"];
  EXPECT_EQ(decode["steps"], 4);
  EXPECT_DOUBLE_EQ(decode["ms"].get<double>(), 0.5);
  ASSERT_EQ(decode["ops"].size(), 1u);
  EXPECT_EQ(decode["ops"][0]["name"], "Matmul");
  EXPECT_EQ(decode["ops"][0]["count"], 2.0);
  EXPECT_DOUBLE_EQ(decode["ops"][0]["ms"].get<double>(), 0.5);
  EXPECT_DOUBLE_EQ(decode["ops"][0]["percent"].get<double>(), 100);
  EXPECT_EQ(decode["ops"][0]["bytes"], 1'000'000);
}

TEST(BenchProfile, LeavesOutWhatWasNotAskedFor) {
  EXPECT_EQ(format_bench_profile({}), "");
  Json json = bench_profile_json({});
  EXPECT_EQ(json.size(), 1u);
  BenchProfile profile = example();
  profile.prefill.reset();
  EXPECT_EQ(format_bench_profile(profile).find("prompt"), std::string::npos);
  EXPECT_FALSE(bench_profile_json(profile).contains("prefill"));
}

}  // namespace
}  // namespace mlxx::apps
