#pragma once

#include <gtest/gtest.h>

#include "mlxx/generate/prefill.h"
#include "mlxx/generate/token_stream.h"
#include "tests/engine/runner_driver.h"

namespace mlxx::engine {

inline std::vector<int32_t> prompt_of(int length, int salt) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < length; ++i) {
    tokens.push_back((salt * 31 + i * i * 7 + i * 3) % 90 + 2);
  }
  return tokens;
}

// Twelve requests of different settings that join and leave at different
// times.
inline std::vector<DrivenRequest> mixed_requests() {
  std::vector<DrivenRequest> all(12);
  for (int i = 0; i < 12; ++i) {
    all[i].prompt = prompt_of(1 + (i * 13) % 50, i);
    all[i].tokens = 4 + (i * 5) % 23;
    all[i].arrival = (i * 7) % 17;
    all[i].settings.seed = 100 + i;
    if (i % 4 != 3) {
      all[i].settings.top_logprobs = i % 4;
    }
    all[i].settings.sampling.temperature = i % 3 == 0 ? 0.0f : 0.6f + 0.1f * i;
  }
  auto sampling = [&](int i) -> generate::SamplingOptions& {
    return all[i].settings.sampling;
  };
  sampling(1).top_p = 0.8f;
  sampling(2).top_k = 12;
  sampling(3).repetition_penalty = 1.3f;
  sampling(4).min_p = 0.05f;
  sampling(4).min_tokens_to_keep = 3;
  sampling(5).presence_penalty = 1.1f;
  sampling(5).frequency_penalty = 0.4f;
  sampling(5).penalty_context_size = 0;
  sampling(6).logit_bias = {{5, 3.0f}, {7, -50.0f}, {40, 2.5f}};
  sampling(7).xtc_probability = 0.6f;
  sampling(7).xtc_threshold = 0.05f;
  sampling(8).repetition_penalty = 0.8f;
  sampling(8).repetition_context_size = 5;
  sampling(8).top_p = 0.95f;
  sampling(10).top_p = 0.5f;
  sampling(10).frequency_penalty = -0.5f;
  sampling(11).top_k = 3;
  sampling(11).logit_bias = {{9, 4.0f}};
  return all;
}

// The same by the decode loop of one sequence.
inline std::vector<int32_t> by_token_stream(
    const models::Model& model,
    const DrivenRequest& request) {
  generate::Sequence sequence;
  generate::reuse_prefix(sequence, request.prompt, model, {});
  generate::prefill(model, request.prompt, sequence, {.step_size = 16});
  generate::TokenStreamOptions options;
  options.sampling = request.settings.sampling;
  if (options.sampling.xtc_probability > 0) {
    options.sampling.xtc_special_tokens = std::vector<int32_t>{1};
  }
  options.seed = request.settings.seed;
  options.max_tokens = request.tokens;
  generate::TokenStream stream(model, request.prompt, sequence, options);
  std::vector<int32_t> tokens;
  while (auto token = stream.next()) {
    tokens.push_back(*token);
  }
  return tokens;
}

inline std::vector<int32_t> ids(const DrivenAnswer& answer) {
  std::vector<int32_t> tokens;
  for (const auto& token : answer.tokens) {
    tokens.push_back(token.token);
  }
  return tokens;
}

inline void expect_same(const DrivenAnswer& a, const DrivenAnswer& b) {
  ASSERT_EQ(ids(a), ids(b));
  for (size_t i = 0; i < a.tokens.size(); ++i) {
    EXPECT_EQ(a.tokens[i].logprob, b.tokens[i].logprob) << i;
    ASSERT_EQ(a.tokens[i].top.size(), b.tokens[i].top.size());
    for (size_t k = 0; k < a.tokens[i].top.size(); ++k) {
      EXPECT_EQ(a.tokens[i].top[k].token, b.tokens[i].top[k].token);
      EXPECT_EQ(a.tokens[i].top[k].logprob, b.tokens[i].top[k].logprob);
    }
  }
}

// Together, alone and by the decode loop of one sequence: the same.
inline void expect_same_in_any_company(
    const models::Model& model,
    Runner& runner) {
  auto requests = mixed_requests();
  auto together = RunnerDriver(runner).run(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    DrivenRequest alone = requests[i];
    alone.arrival = 0;
    auto answer = RunnerDriver(runner, 7).run({alone});
    expect_same(together[i], answer[0]);
    EXPECT_EQ(ids(together[i]), by_token_stream(model, alone));
  }
}

}  // namespace mlxx::engine
