// Rows that run together and share what was computed before answer as they do
// alone and from the start.
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "mlxx/engine/model_runner.h"
#include "tests/core/temporary_folder.h"
#include "tests/engine/runner_driver.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::engine {
namespace {

using Tokens = std::vector<int32_t>;

std::shared_ptr<const models::Model> tiny_model(const std::string& type) {
  Json config = parse_json(models::find_model(type).tiny_config, "tiny");
  return models::load_model(
      models::random_checkpoint(config, hub::Quantization{32, 4, "affine"}));
}

std::shared_ptr<const ModelText> text_of(const models::Model& model) {
  auto text = std::make_shared<ModelText>();
  text->vocab_size = model.summary().vocab_size;
  text->eos_ids = {1};
  return text;
}

Tokens random_tokens(std::mt19937& random, int n) {
  Tokens tokens;
  for (int i = 0; i < n; ++i) {
    tokens.push_back(static_cast<int32_t>(2 + random() % 90));
  }
  return tokens;
}

Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The next turn of each conversation: after its answer, some tokens of its own.
void go_on(
    std::vector<DrivenRequest>& requests,
    const std::vector<DrivenAnswer>& answers,
    std::mt19937& random) {
  for (size_t i = 0; i < requests.size(); ++i) {
    for (const auto& token : answers[i].tokens) {
      requests[i].prompt.push_back(token.token);
    }
    requests[i].prompt =
        joined(std::move(requests[i].prompt), random_tokens(random, 15));
  }
}

// With our CPU kernels a row's bits are its own.
bool has_exact_rows() {
  return kernels::select_from_environment().has_cpu_kernels();
}

void expect_as_alone(
    const std::vector<DrivenRequest>& requests,
    const std::vector<DrivenAnswer>& answers,
    ModelRunner& cold) {
  size_t others = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    DrivenRequest alone = requests[i];
    alone.arrival = 0;
    auto answer = RunnerDriver(cold, 512).run({alone})[0];
    EXPECT_EQ(answer.cached, 0);
    ASSERT_EQ(answers[i].tokens.size(), answer.tokens.size());
    for (size_t t = 0; t < answer.tokens.size(); ++t) {
      // Plain operations round a row otherwise among others: then another
      // token may be as likely, and what follows is no matter of this test.
      if (!has_exact_rows()) {
        if (answers[i].tokens[t].token != answer.tokens[t].token) {
          ++others;
          break;
        }
        ASSERT_NEAR(
            answers[i].tokens[t].logprob,
            answer.tokens[t].logprob,
            2e-3f)
            << "request " << i << ", token " << t;
        continue;
      }
      ASSERT_EQ(answers[i].tokens[t].token, answer.tokens[t].token)
          << "request " << i << ", token " << t;
      ASSERT_EQ(answers[i].tokens[t].logprob, answer.tokens[t].logprob);
    }
  }
  EXPECT_LE(others, 1u);
}

class SharedStates : public testing::TestWithParam<const char*> {};

TEST_P(SharedStates, AnswerFromSharedStatesAsFromTheStart) {
  auto model = tiny_model(GetParam());
  ModelRunner cold(model, text_of(*model), {});
  std::mt19937 random(1);
  Tokens system = random_tokens(random, 130);
  std::vector<DrivenRequest> requests(16);
  for (int i = 0; i < 16; ++i) {
    requests[i].prompt = joined(system, random_tokens(random, 10 + i));
    requests[i].tokens = 5 + i % 7;
    requests[i].arrival = i / 3;
    requests[i].settings.seed = i;
    requests[i].settings.top_logprobs = 0;
    requests[i].settings.sampling.temperature = i % 2 ? 0.9f : 0.0f;
  }
  TemporaryFolder folder;
  size_t held = 0;
  // With room for all, then for some of them, then with what is on disk.
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    PrefixCacheOptions options;
    if (round == 1) {
      options.max_bytes = held / 3;
    } else {
      options.folder = folder.path() / "prompts";
    }
    PrefixCache prefixes(options);
    ModelRunner runner(
        model,
        text_of(*model),
        {.space = "m", .prefixes = &prefixes, .states_identity = "tiny"});
    auto turns = requests;
    std::mt19937 own(2);
    for (int turn = 0; turn < 3; ++turn) {
      auto answers = RunnerDriver(runner, 32).run(turns);
      expect_as_alone(turns, answers, cold);
      int cached = 0;
      for (const auto& answer : answers) {
        cached += answer.cached >= 64;
      }
      // The first turn has a system prompt, later ones their own past.
      EXPECT_GE(cached, round == 1 ? 4 : 14) << "turn " << turn;
      go_on(turns, answers, own);
      prefixes.tick();
    }
    prefixes.shrink(0);
    PrefixCacheStats stats = prefixes.stats();
    if (round == 0) {
      held = stats.bytes;
      EXPECT_EQ(stats.evictions, 0u);
    } else if (round == 1) {
      EXPECT_GT(stats.evictions, 0u);
      EXPECT_LE(stats.bytes, held / 3);
    } else {
      EXPECT_GT(stats.disk_hits, 0u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    RunnerPrefix,
    SharedStates,
    testing::Values("llama", "falcon_h1", "qwen3_next", "gemma3_text"),
    [](const auto& info) { return std::string(info.param); });

TEST(RunnerPrefix, AForkSharesThePromptAndTheOriginalGoesOn) {
  auto model = tiny_model("llama");
  PrefixCache prefixes({});
  ModelRunner runner(
      model,
      text_of(*model),
      {.space = "m", .prefixes = &prefixes, .states_identity = {}});
  std::mt19937 random(3);
  Tokens prompt = random_tokens(random, 100);
  std::vector<DrivenRequest> same(2);
  for (auto& request : same) {
    request.prompt = prompt;
    request.tokens = 30;
  }
  same[1].arrival = 3;  // while the first one is running
  auto answers = RunnerDriver(runner).run(same);
  EXPECT_EQ(answers[0].cached, 0);
  EXPECT_EQ(answers[1].cached, 99);
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(answers[0].tokens[i].token, answers[1].tokens[i].token);
  }
}

TEST(RunnerPrefix, AModelThatGoesTakesItsStatesAlong) {
  auto model = tiny_model("llama");
  PrefixCache prefixes({});
  {
    ModelRunner runner(
        model,
        text_of(*model),
        {.space = "m", .prefixes = &prefixes, .states_identity = {}});
    DrivenRequest request;
    request.prompt = Tokens(80, 5);
    request.tokens = 3;
    RunnerDriver(runner).run({request});
    EXPECT_GT(prefixes.stats().bytes, 0u);
  }
  EXPECT_EQ(prefixes.stats().bytes, 0u);
  EXPECT_EQ(prefixes.stats().entries, 0u);
}

}  // namespace
}  // namespace mlxx::engine
