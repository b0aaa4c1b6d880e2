// Rows with different adapters in one step answer as each does alone.
#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "mlxx/engine/model_runner.h"
#include "tests/adapters/adapter_writer.h"
#include "tests/engine/runner_driver.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::engine {
namespace {

using adapters::AdapterFile;
using adapters::random_change;

Json tiny_config() {
  return parse_json(
      R"({"model_type":"llama","vocab_size":96,"hidden_size":64,
          "intermediate_size":128,"num_hidden_layers":2,
          "num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,
          "rms_norm_eps":1e-5,"tie_word_embeddings":true})",
      "config.json");
}

std::shared_ptr<const models::Model> tiny_model() {
  return models::load_model(models::random_checkpoint(
      tiny_config(),
      hub::Quantization{32, 4, "affine"}));
}

AdapterFile some_adapter(uint64_t key, bool dora = false) {
  return {
      "mlx-lm",
      {random_change("model.layers.0.self_attn.q_proj", 64, 64, 4, key, dora),
       random_change("model.layers.1.mlp.down_proj", 128, 64, 4, key + 1, dora),
       random_change("model.layers.1.mlp.up_proj", 64, 128, 4, key + 2, dora)}};
}

class RunnerWithAdapters : public testing::Test {
 protected:
  std::unique_ptr<ModelRunner> make_runner(PrefixCache* prefixes = nullptr) {
    auto text = std::make_shared<ModelText>();
    text->vocab_size = model_->summary().vocab_size;
    text->eos_ids = {1};
    auto runner = std::make_unique<ModelRunner>(
        model_,
        text,
        ModelRunnerOptions{.space = "m", .prefixes = prefixes});
    runner->adapters().mount("a", some_adapter(1));
    runner->adapters().mount("b", some_adapter(20));
    runner->adapters().mount("d", some_adapter(40, true));
    return runner;
  }

  static DrivenRequest
  request(const std::string& adapter, int length, int arrival) {
    DrivenRequest one;
    for (int i = 0; i < length; ++i) {
      one.prompt.push_back(2 + (i * 13 + 7) % 90);
    }
    one.settings.adapter = adapter;
    one.settings.sampling.temperature = 0;
    one.settings.top_logprobs = 0;
    one.tokens = 12;
    one.arrival = arrival;
    return one;
  }

  static void expect_equal(const DrivenAnswer& got, const DrivenAnswer& want) {
    ASSERT_EQ(got.tokens.size(), want.tokens.size());
    for (size_t i = 0; i < want.tokens.size(); ++i) {
      ASSERT_EQ(got.tokens[i].token, want.tokens[i].token) << i;
      ASSERT_EQ(got.tokens[i].logprob, want.tokens[i].logprob) << i;
    }
  }

  std::shared_ptr<const models::Model> model_ = tiny_model();
};

TEST_F(RunnerWithAdapters, RowsThatJoinAndLeaveAnswerAsAlone) {
  PrefixCache prefixes({.max_bytes = size_t{64} << 20});
  auto runner = make_runner(&prefixes);
  auto cold = make_runner();
  std::vector<DrivenRequest> requests = {
      request("b", 40, 0),
      request("", 90, 0),
      request("a", 40, 1),
      request("a+b", 70, 2),
      request("d", 20, 2),
      request("", 30, 3),
      request("a", 75, 5)};
  std::set<std::vector<int32_t>> different;
  for (int round = 0; round < 2; ++round) {
    auto answers = RunnerDriver(*runner).run(requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      DrivenRequest alone = requests[i];
      alone.arrival = 0;
      expect_equal(answers[i], RunnerDriver(*cold, 512).run({alone})[0]);
      // The second round finds its own states.
      EXPECT_TRUE(round == 0 || answers[i].cached > 0) << i;
    }
  }
  // Adapters matter.
  float base =
      RunnerDriver(*cold).run({request("", 40, 0)})[0].tokens[0].logprob;
  float with =
      RunnerDriver(*cold).run({request("a", 40, 0)})[0].tokens[0].logprob;
  EXPECT_NE(base, with);
}

TEST_F(RunnerWithAdapters, AnotherAdapterOfThatNameFindsNoStatesOfTheFirst) {
  PrefixCache prefixes({.max_bytes = size_t{64} << 20});
  auto runner = make_runner(&prefixes);
  RunnerDriver(*runner).run({request("a", 80, 0)});
  EXPECT_EQ(RunnerDriver(*runner).run({request("b", 80, 0)})[0].cached, 0);
  EXPECT_EQ(RunnerDriver(*runner).run({request("", 80, 0)})[0].cached, 0);
  EXPECT_GT(RunnerDriver(*runner).run({request("a", 80, 0)})[0].cached, 0);
  runner->adapters().unmount("a");
  runner->adapters().mount("a", some_adapter(99));
  EXPECT_EQ(RunnerDriver(*runner).run({request("a", 80, 0)})[0].cached, 0);
}

TEST_F(RunnerWithAdapters, UnknownOnesAreRefusedAndRunningRowsGoOn) {
  auto runner = make_runner();
  RowSettings settings;
  settings.adapter = "none_such";
  std::vector<int32_t> prompt = {3, 4, 5};
  try {
    runner->open(prompt, settings);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::not_found);
  }
  EXPECT_THROW(runner->prompt_logprobs(prompt, 0, "x"), Error);
  settings.adapter = "a";
  auto opened = runner->open(prompt, settings);
  runner->adapters().unmount("a");
  while (runner->prefill(*opened.row, 16) > 0) {
  }
  auto fork = runner->fork(*opened.row, settings);
  Row* rows[] = {opened.row.get(), fork.get()};
  auto step = runner->begin(rows);
  runner->choose(*step, {});
  EXPECT_EQ(runner->read(*step).size(), 2u);
}

TEST_F(RunnerWithAdapters, PromptLogprobsAreTheAdapters) {
  auto runner = make_runner();
  std::vector<int32_t> prompt = {3, 14, 15, 9, 26, 5};
  auto base = runner->prompt_logprobs(prompt, 0, "");
  auto with = runner->prompt_logprobs(prompt, 0, "a");
  EXPECT_NE(base[3].logprob, with[3].logprob);
}

}  // namespace
}  // namespace mlxx::engine
