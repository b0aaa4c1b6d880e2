// What a scheduler may do with rows and steps, and what it may not.
#include <cmath>

#include <gtest/gtest.h>

#include "mlxx/engine/model_runner.h"
#include "tests/engine/runner_driver.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::engine {
namespace {

using Tokens = std::vector<int32_t>;

std::shared_ptr<const models::Model> tiny_model(
    const std::string& type,
    bool fallback = false) {
  Json config = parse_json(models::find_model(type).tiny_config, "tiny");
  return models::load_model(
      models::random_checkpoint(config, hub::Quantization{32, 4, "affine"}),
      models::LoadOptions{.kernels = models::selection(fallback)});
}

std::shared_ptr<const ModelText> text_of(const models::Model& model) {
  auto text = std::make_shared<ModelText>();
  text->vocab_size = model.summary().vocab_size;
  text->eos_ids = {1};
  return text;
}

ModelRunner runner_of(const std::shared_ptr<const models::Model>& model) {
  return ModelRunner(model, text_of(*model), {});
}

Tokens prompt_of(int length, int salt) {
  Tokens tokens;
  for (int i = 0; i < length; ++i) {
    tokens.push_back((salt * 17 + i * 5) % 90 + 2);
  }
  return tokens;
}

std::unique_ptr<Row>
opened(Runner& runner, const Tokens& prompt, const RowSettings& settings = {}) {
  auto row = runner.open(prompt, settings).row;
  while (runner.prefill(*row, 64) > 0) {
  }
  return row;
}

std::vector<Row*> pointers(const std::vector<std::unique_ptr<Row>>& rows) {
  std::vector<Row*> all;
  for (const auto& row : rows) {
    all.push_back(row.get());
  }
  return all;
}

// The plain operations give other low bits to a row in a batch, so that only
// what does not hang on them is compared.
TEST(RunnerEdges, InFallbackModeCompanyChangesNoToken) {
  for (const char* type : {"llama", "falcon_h1", "gemma3_text"}) {
    SCOPED_TRACE(type);
    auto model = tiny_model(type, true);
    kernels::Selection plain;
    plain.fallback = true;
    ModelRunnerOptions options;
    options.kernels = plain;
    ModelRunner runner(model, text_of(*model), options);
    std::vector<DrivenRequest> requests(5);
    for (int i = 0; i < 5; ++i) {
      requests[i].prompt = prompt_of(1 + 9 * i, i);
      requests[i].tokens = 6 + 3 * i;
      requests[i].arrival = 2 * i;
      requests[i].settings.seed = i;
      requests[i].settings.top_logprobs = 2;
      requests[i].settings.sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f;
      requests[i].settings.sampling.top_p = 0.9f;
    }
    auto together = RunnerDriver(runner).run(requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      DrivenRequest alone = requests[i];
      alone.arrival = 0;
      auto answer = RunnerDriver(runner).run({alone})[0];
      for (size_t t = 0; t < answer.tokens.size(); ++t) {
        const auto& a = together[i].tokens[t];
        const auto& b = answer.tokens[t];
        ASSERT_EQ(a.token, b.token) << "request " << i << ", token " << t;
        EXPECT_NEAR(a.logprob, b.logprob, 1e-3f);
      }
    }
  }
}

TEST(RunnerEdges, PenaltiesSeeTokensThatWereNotReadYet) {
  auto model = tiny_model("llama");
  auto runner = runner_of(model);
  RowSettings settings;
  settings.sampling.repetition_penalty = 1.5f;
  settings.sampling.frequency_penalty = 1;
  settings.sampling.penalty_context_size = 0;
  DrivenRequest request{prompt_of(9, 1), settings, 8, 0};
  auto expected = RunnerDriver(runner).run({request})[0];

  std::vector<std::unique_ptr<Row>> rows;
  rows.push_back(opened(runner, request.prompt, settings));
  std::vector<std::unique_ptr<Step>> steps;
  for (int i = 0; i < 8; ++i) {
    steps.push_back(runner.begin(pointers(rows)));
    runner.choose(*steps.back(), {});
  }
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(runner.read(*steps[i])[0].token.token, expected.tokens[i].token);
  }
}

TEST(RunnerEdges, ARowMayGoWhileAStepComputesIt) {
  for (const char* type : {"llama", "falcon_h1", "gemma3_text"}) {
    SCOPED_TRACE(type);
    auto model = tiny_model(type);
    auto runner = runner_of(model);
    DrivenRequest stays{prompt_of(20, 3), {}, 6, 0};
    auto expected = RunnerDriver(runner).run({stays})[0];

    std::vector<std::unique_ptr<Row>> rows;
    rows.push_back(opened(runner, prompt_of(30, 1)));
    rows.push_back(opened(runner, stays.prompt));
    Tokens answer;
    std::unique_ptr<Step> before;
    for (int i = 0; i < 6; ++i) {
      auto now = runner.begin(pointers(rows));
      runner.choose(*now, {});
      if (i == 2) {
        runner.close(std::move(rows[0]), {});
        rows.erase(rows.begin());
      }
      if (before) {
        answer.push_back(runner.read(*before).back().token.token);
      }
      before = std::move(now);
    }
    answer.push_back(runner.read(*before).back().token.token);
    for (size_t i = 0; i < answer.size(); ++i) {
      EXPECT_EQ(answer[i], expected.tokens[i].token) << i;
    }
  }
}

TEST(RunnerEdges, MasksOfARowAreItsOwn) {
  auto model = tiny_model("llama");
  auto runner = runner_of(model);
  RowSettings random;
  random.sampling.temperature = 1.5f;
  random.top_logprobs = 1;
  std::vector<std::unique_ptr<Row>> rows;
  rows.push_back(opened(runner, prompt_of(5, 1), random));
  rows.push_back(opened(runner, prompt_of(6, 2), random));
  TokenMask odd(static_cast<size_t>((runner.vocab_size() + 31) / 32));
  for (auto& word : odd) {
    word = 0xaaaaaaaau;
  }
  bool even_seen = false;
  for (int i = 0; i < 12; ++i) {
    auto step = runner.begin(pointers(rows));
    std::vector<TokenMask> masks{odd, {}};
    runner.choose(*step, masks);
    auto chosen = runner.read(*step);
    EXPECT_EQ(chosen[0].token.token % 2, 1);
    EXPECT_TRUE(chosen[0].finite);
    // Of the model's distribution, which the mask does not change.
    EXPECT_LE(chosen[0].token.logprob, chosen[0].token.top[0].logprob);
    even_seen = even_seen || chosen[1].token.token % 2 == 0;
  }
  EXPECT_TRUE(even_seen);
}

TEST(RunnerEdges, LogprobsOfAPromptAreThoseOfItsTokensAsAnAnswer) {
  auto model = tiny_model("llama");
  auto runner = runner_of(model);
  RowSettings settings;
  settings.top_logprobs = 3;
  DrivenRequest request{prompt_of(70, 4), settings, 12, 0};
  auto answer = RunnerDriver(runner).run({request})[0];
  Tokens all = request.prompt;
  for (const auto& token : answer.tokens) {
    all.push_back(token.token);
  }
  auto logprobs = runner.prompt_logprobs(all, 3, "");
  ASSERT_EQ(logprobs.size(), all.size());
  EXPECT_TRUE(std::isnan(logprobs[0].logprob));
  EXPECT_TRUE(logprobs[0].top.empty());
  for (size_t i = 0; i < answer.tokens.size(); ++i) {
    const auto& of_prompt = logprobs[request.prompt.size() + i];
    const auto& of_answer = answer.tokens[i];
    EXPECT_EQ(of_prompt.token, of_answer.token);
    EXPECT_EQ(of_prompt.logprob, of_answer.logprob);
    ASSERT_EQ(of_prompt.top.size(), 3u);
    for (size_t k = 0; k < 3; ++k) {
      EXPECT_EQ(of_prompt.top[k].token, of_answer.top[k].token);
    }
    EXPECT_EQ(of_answer.top[0].token, of_answer.token);  // greedy
  }
  EXPECT_EQ(runner.prompt_logprobs(Tokens{5}, 0, "").size(), 1u);
  EXPECT_THROW(runner.prompt_logprobs({}, 0, ""), Error);
}

ErrorKind kind_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorKind::internal;
}

TEST(RunnerEdges, RefusesPromptsThatAreNone) {
  auto model = tiny_model("llama");
  auto runner = runner_of(model);
  for (const Tokens& prompt :
       {Tokens{}, Tokens{3, -1}, Tokens{runner.vocab_size()}}) {
    EXPECT_EQ(
        kind_of([&] { runner.open(prompt, {}); }),
        ErrorKind::invalid_request);
  }
  RowSettings settings;
  settings.adapter = "none";
  EXPECT_EQ(
      kind_of([&] { runner.open(Tokens{3}, settings); }),
      ErrorKind::not_found);
}

TEST(RunnerEdges, RefusesStepsOutOfTurn) {
  auto model = tiny_model("llama");
  auto runner = runner_of(model);
  std::vector<std::unique_ptr<Row>> rows;
  rows.push_back(runner.open(prompt_of(5, 1), {}).row);
  auto begin = [&] { return runner.begin(pointers(rows)); };
  auto refused = [&](const std::function<void()>& body) {
    EXPECT_EQ(kind_of(body), ErrorKind::internal);
  };
  refused([&] { begin(); });  // not prefilled
  EXPECT_EQ(runner.prefill(*rows[0], 3), 1);
  refused([&] { runner.fork(*rows[0], {}); });
  EXPECT_EQ(runner.prefill(*rows[0], 3), 0);
  EXPECT_EQ(runner.prefill(*rows[0], 3), 0);
  auto first = begin();
  refused([&] { begin(); });  // nothing was chosen to feed
  refused([&] { runner.read(*first); });
  runner.choose(*first, {});
  refused([&] { runner.choose(*first, {}); });
  refused([&] { runner.fork(*rows[0], {}); });
  auto second = begin();
  runner.choose(*second, {});
  refused([&] { runner.read(*second); });  // the first comes first
  runner.read(*first);
  runner.read(*second);
  refused([&] { runner.read(*first); });
  refused([&] { runner.begin({}); });

  class Stranger : public Row {};
  Stranger stranger;
  refused([&] { runner.prefill(stranger, 1); });
}

TEST(RunnerEdges, TellsOfLogitsThatAreNoNumbers) {
  Json config = parse_json(models::find_model("llama").tiny_config, "tiny");
  auto checkpoint = models::random_checkpoint(config);
  mx::array norm = mx::full({config.at("hidden_size").get<int>()}, NAN);
  checkpoint.add("model.norm.weight", norm);
  std::shared_ptr<const models::Model> model = models::load_model(
      checkpoint,
      models::LoadOptions{.kernels = models::selection(false)});
  auto runner = runner_of(model);
  for (float temperature : {0.0f, 1.0f}) {
    RowSettings settings;
    settings.sampling.temperature = temperature;
    std::vector<std::unique_ptr<Row>> rows;
    rows.push_back(opened(runner, prompt_of(5, 1), settings));
    auto step = runner.begin(pointers(rows));
    runner.choose(*step, {});
    EXPECT_FALSE(runner.read(*step)[0].finite);
  }
}

}  // namespace
}  // namespace mlxx::engine
