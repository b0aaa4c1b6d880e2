#include "mlxx/generate/token_stream.h"

#include <algorithm>
#include <cmath>

#include "mlxx/core/memory.h"
#include "mlxx/core/mlx_errors.h"

namespace mlxx::generate {

namespace {

// Buffers of outgrown caches and the like go back to the system this often.
constexpr int kClearInterval = 256;

}  // namespace

TokenStream::TokenStream(
    const models::Model& model,
    const std::vector<int32_t>& prompt,
    Sequence& sequence,
    const TokenStreamOptions& options)
    : model_(model),
      sequence_(sequence),
      sampler_(options.sampling),
      processors_(options.sampling),
      options_(options),
      unfed_(prompt.back()) {}

TokenStream::~TokenStream() {
  if (!in_flight_) {
    return;
  }
  try {
    mx::eval(in_flight_->token);
  } catch (const std::exception&) {
    // Its result is not wanted; whoever uses the caches next sees the fault.
  }
}

// [1, W] int32, `newest` last. The caches' tokens are the whole history: they
// include what earlier calls computed.
mx::array TokenStream::window(const mx::array& newest) const {
  const auto& tokens = sequence_.tokens;
  size_t before = tokens.size();
  if (processors_.window() > 0) {
    before = std::min(before, static_cast<size_t>(processors_.window()) - 1);
  }
  auto last = mx::reshape(newest, {1, 1});
  if (before == 0) {
    return last;
  }
  auto width = static_cast<mx::ShapeElem>(before);
  mx::array known(tokens.end() - width, {1, width}, mx::int32);
  return mx::concatenate({known, last}, 1);
}

mx::array TokenStream::logits_after(const mx::array& input) {
  auto token = mx::reshape(input, {1, 1});
  return options_.step ? options_.step->forward_last(token, sequence_.caches)
                       : model_.forward_last(token, sequence_.caches);
}

TokenStream::Step TokenStream::enqueue(const mx::array& input) {
  auto logits = logits_after(input);
  if (!processors_.empty()) {
    logits = processors_.apply(logits, window(input));
  }
  SampleKey key{options_.seed, enqueued_};
  auto sampled = sampler_.sample(logits, {&key, 1});
  mx::async_eval(sampled.tokens, sampled.check);
  ++enqueued_;
  return {sampled.tokens, sampled.check};
}

std::optional<int32_t> TokenStream::next() {
  if (returned_ >= options_.max_tokens) {
    return std::nullopt;
  }
  return with_mlx_errors("decode", [&] {
    if (unfed_) {
      in_flight_ = enqueue(mx::array({*unfed_}, {1}));
      sequence_.tokens.push_back(*unfed_);
      unfed_.reset();
    }
    Step step = *in_flight_;
    in_flight_.reset();
    bool last = returned_ + 1 == options_.max_tokens;
    if (!last) {
      in_flight_ = enqueue(step.token);
    }
    auto token = step.token.item<int32_t>();
    if (!std::isfinite(step.check.item<float>())) {
      fail(
          ErrorKind::internal,
          "decode",
          "the model's logits are not finite numbers at token {} of the "
          "answer (an overflow in half precision, or damaged weights)",
          returned_);
    }
    if (!last) {
      sequence_.tokens.push_back(token);
    }
    if (returned_ % kClearInterval == 0) {
      clear_cache();
    }
    ++returned_;
    return std::optional<int32_t>(token);
  });
}

}  // namespace mlxx::generate
