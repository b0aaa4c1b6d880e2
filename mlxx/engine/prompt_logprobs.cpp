#include "mlxx/engine/prompt_logprobs.h"

#include <algorithm>
#include <limits>

#include "mlxx/cache/states.h"
#include "mlxx/core/memory.h"
#include "mlxx/engine/batch_sampler.h"

namespace mlxx::engine {
namespace {

// Logits are computed for so many tokens at a time.
constexpr int kChunk = 64;

// `logits` [n, V] led to `tokens`.
void add_tokens(
    const mx::array& logits,
    std::span<const int32_t> tokens,
    int top,
    const kernels::Selection& selection,
    std::vector<AnswerToken>& answer) {
  ChosenTokens scored = score_tokens(logits, tokens, top, selection);
  mx::eval(scored.arrays());
  auto on_host = [](const std::optional<mx::array>& a) {
    mx::array host = mx::contiguous(*a);
    mx::eval(host);
    return host;
  };
  mx::array own = on_host(scored.logprobs);
  std::optional<mx::array> ids;
  std::optional<mx::array> values;
  if (top > 0) {
    ids = on_host(scored.top_tokens);
    values = on_host(scored.top_logprobs);
  }
  for (int i = 0; i < std::ssize(tokens); ++i) {
    AnswerToken token{tokens[i], own.data<float>()[i], {}};
    for (int k = i * top; k < (i + 1) * top; ++k) {
      token.top.push_back({ids->data<int32_t>()[k], values->data<float>()[k]});
    }
    answer.push_back(std::move(token));
  }
}

}  // namespace

std::vector<AnswerToken> prompt_logprobs(
    const models::Model& model,
    cache::CacheList caches,
    std::span<const int32_t> prompt,
    int top,
    const kernels::Selection& selection) {
  int vocabulary = model.summary().vocab_size;
  top = std::clamp(top, 0, vocabulary);
  std::vector<AnswerToken> answer{
      {prompt.front(), std::numeric_limits<float>::quiet_NaN(), {}}};
  auto total = static_cast<int>(prompt.size());
  for (int done = 0; done < total - 1;) {
    int count = std::min(kChunk, total - 1 - done);
    mx::array chunk(prompt.begin() + done, {1, count}, mx::int32);
    mx::array logits = model.forward(chunk, caches);
    add_tokens(
        mx::reshape(logits, {count, vocabulary}),
        prompt.subspan(
            static_cast<size_t>(done) + 1,
            static_cast<size_t>(count)),
        top,
        selection,
        answer);
    evaluate(caches);
    clear_cache();
    done += count;
  }
  return answer;
}

}  // namespace mlxx::engine
