// A real model behind the engine: an answer depends on its request only, not on
// who else is answered, in which order, how prompts are cut, or what is kept.
#include <condition_variable>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/engine/engine.h"
#include "mlxx/engine/model_pool.h"
#include "tests/engine/tiny_model_folder.h"

namespace mlxx::engine {
namespace {

struct Answered {
  std::map<int, std::string> texts;
  std::map<int, std::vector<int32_t>> tokens;
  std::map<int, std::vector<float>> logprobs;
  std::map<int, FinishReason> reasons;

  bool operator==(const Answered&) const = default;
};

class EngineModel : public ::testing::Test {
 protected:
  EngineModel() {
    write_tiny_model(folder_.path() / "a");
    ModelListOptions models;
    models.models = {{"a", folder_.path() / "a"}};
    list_ = std::make_shared<ModelList>(std::move(models));
  }

  std::unique_ptr<Engine> engine(int rows, int prefill_step, size_t prefixes) {
    EngineOptions options;
    options.max_rows = rows;
    options.prefill_step = prefill_step;
    ModelPoolOptions pool;
    pool.prefill_step = prefill_step;
    pool.prefixes.max_bytes = prefixes;
    return std::make_unique<Engine>(options, [this, pool] {
      return std::make_unique<ModelPool>(list_, pool);
    });
  }

  // All at once; those whose index is in `cancelled` are given up soon.
  std::vector<Answered> answer(
      Engine& engine,
      const std::vector<Request>& requests,
      const std::set<size_t>& cancelled = {}) {
    std::vector<Answered> answers(requests.size());
    std::mutex mutex;
    std::condition_variable changed;
    size_t left = 0;
    for (const Request& request : requests) {
      left += static_cast<size_t>(request.n);
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      auto id = engine.submit(requests[i], [&, i](Event event) {
        std::lock_guard lock(mutex);
        Answered& answer = answers[i];
        answer.texts[event.choice] += event.text;
        for (const AnswerToken& token : event.tokens) {
          answer.tokens[event.choice].push_back(token.token);
          answer.logprobs[event.choice].push_back(token.logprob);
        }
        if (event.finish) {
          EXPECT_FALSE(event.finish->error) << event.finish->error->what();
          answer.reasons[event.choice] = event.finish->reason;
          --left;
          changed.notify_all();
        }
      });
      if (cancelled.contains(i)) {
        engine.cancel(id);
      }
    }
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] {
      return left == 0;
    }));
    return answers;
  }

  TemporaryFolder folder_;
  std::shared_ptr<ModelList> list_;
};

// Of every kind, many with a beginning in common.
std::vector<Request> mixed_requests() {
  std::vector<Request> requests;
  std::mt19937 random(11);
  for (int i = 0; i < 28; ++i) {
    Request request;
    request.model = "a";
    for (int t = 0; t < (i % 3 == 0 ? 130 : 0); ++t) {
      request.prompt.push_back('a' + t % 23);
    }
    for (int t = 0; t < 1 + i * 3; ++t) {
      request.prompt.push_back(static_cast<int32_t>(random() % 250));
    }
    request.max_tokens = 3 + i % 25;
    request.sampling.seed = i;
    request.sampling.temperature = i % 4 == 0 ? 0.0f : 0.5f + 0.1f * (i % 8);
    request.sampling.top_p = i % 5 == 1 ? 0.8f : 1.0f;
    request.sampling.top_k = i % 5 == 2 ? 20 : 0;
    request.sampling.repetition_penalty = i % 6 == 3 ? 1.3f : 0.0f;
    if (i % 7 == 4) {
      request.sampling.logit_bias = {{'x', 4.0f}, {'y', -3.0f}};
    }
    request.n = i % 9 == 5 ? 3 : 1;
    if (i % 2 == 0) {
      request.top_logprobs = i % 3;
    }
    if (i % 8 == 6) {
      request.constraint = Constraint{
          text::GrammarKind::json_schema,
          R"({"type":"array","items":{"type":"boolean"},"maxItems":3})"};
    }
    if (i % 8 == 7) {
      request.reasoning = Reasoning{true, "<s>", "<end>", i % 5};
      request.visible_tokens = {"<end>"};
    }
    if (i % 10 == 2) {
      request.stop = {"a", "hi"};
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST_F(EngineModel, AnAnswerDoesNotDependOnItsCompany) {
  auto requests = mixed_requests();
  std::vector<Answered> alone;
  {
    auto one = engine(8, 512, 0);
    for (const Request& request : requests) {
      alone.push_back(answer(*one, {request})[0]);
    }
  }
  for (const Answered& answered : alone) {
    for (const auto& [choice, reason] : answered.reasons) {
      EXPECT_TRUE(
          reason == FinishReason::stop || reason == FinishReason::length);
    }
  }
  EXPECT_NE(alone[5].texts.at(0), alone[5].texts.at(1));
  EXPECT_EQ(alone[6].texts.at(0)[0], '[');
  for (auto [rows, step, prefixes] :
       {std::tuple{4, 512, size_t{0}},
        std::tuple{32, 16, size_t{0}},
        std::tuple{16, 32, size_t{64} << 20}}) {
    auto many = engine(rows, step, prefixes);
    for (int round = 0; round < 2; ++round) {
      auto answers = answer(*many, requests);
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(answers[i], alone[i])
            << "request " << i << " among " << rows << " rows, chunks of "
            << step << ", round " << round;
      }
    }
    EXPECT_EQ(many->stats().failed, 0u);
    if (prefixes > 0) {
      EXPECT_GT(many->stats().cached_tokens, 128u);
    }
  }
}

TEST_F(EngineModel, OthersThatAreGivenUpChangeNothing) {
  auto requests = mixed_requests();
  auto shared = engine(16, 16, size_t{64} << 20);
  auto expected = answer(*shared, requests);
  std::set<size_t> cancelled;
  for (size_t i = 1; i < requests.size(); i += 2) {
    cancelled.insert(i);
  }
  auto answers = answer(*shared, requests, cancelled);
  for (size_t i = 0; i < requests.size(); i += 2) {
    EXPECT_EQ(answers[i], expected[i]) << i;
  }
  for (size_t i : cancelled) {
    for (const auto& [choice, text] : answers[i].texts) {
      EXPECT_TRUE(expected[i].texts[choice].starts_with(text)) << i;
    }
  }
}

}  // namespace
}  // namespace mlxx::engine
