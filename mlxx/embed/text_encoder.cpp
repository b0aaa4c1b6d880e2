#include "mlxx/embed/text_encoder.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <numeric>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/core/materialize.h"
#include "mlxx/text/model_input.h"

namespace mlxx::embed {
namespace {

// Tokens computed together: enough to fill matrix products, few enough that
// their activations stay small.
constexpr int64_t kBatchTokens = 4096;

// tokenizer_config's model_max_length; 0 if it says nothing of use
// (transformers writes 1e30 for "unknown").
int read_tokenizer_limit(const hub::TextFiles& files) {
  Json json = parse_json(files.tokenizer_config_json, "tokenizer_config.json");
  JsonView config(json, "tokenizer_config.json");
  double limit = config.number_or("model_max_length", 0);
  return limit >= 1 && limit < 1e9 ? static_cast<int>(limit) : 0;
}

int smaller_limit(int a, int b) {
  return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

void check_input(
    const EncoderInput& input,
    const Encoder::Summary& model,
    size_t index) {
  if (input.ids.empty()) {
    fail(
        ErrorKind::invalid_request,
        fmt::format("text {}", index),
        "has no tokens");
  }
  int32_t id = *std::ranges::max_element(input.ids);
  if (id >= model.vocab_size) {
    fail(
        ErrorKind::bad_file,
        "tokenizer.json",
        "gives the token id {}, the model has {}",
        id,
        model.vocab_size);
  }
  int32_t type = *std::ranges::max_element(input.types);
  if (type >= model.types) {
    fail(
        ErrorKind::bad_file,
        "tokenizer.json",
        "gives the token type {}, the model has {}",
        type,
        model.types);
  }
}

}  // namespace

TextEncoder TextEncoder::load(
    std::shared_ptr<const hub::Checkpoint> checkpoint,
    EncoderPurpose purpose,
    const TextEncoderOptions& options,
    const models::LoadOptions& load_options) {
  TextEncoder text;
  text.checkpoint_ = std::move(checkpoint);
  // The tokenizer needs no MLX: meanwhile this thread packs weights.
  auto tokenizer = std::async(std::launch::async | std::launch::deferred, [&] {
    return text::Tokenizer::from_json(text.checkpoint_->text().tokenizer_json);
  });
  text.encoder_ = load_encoder(*text.checkpoint_, purpose, load_options);
  text.tokenizer_ = tokenizer.get();
  text.lower_case_ = options.lower_case;
  int wanted = options.max_tokens > 0
      ? options.max_tokens
      : read_tokenizer_limit(text.checkpoint_->text());
  text.max_tokens_ = smaller_limit(wanted, text.encoder_->summary().max_tokens);
  return text;
}

TextEncoder::Encoded TextEncoder::encode(
    std::span<const TextInput> texts,
    int max_tokens) const {
  if (max_tokens < 0 || (max_tokens_ > 0 && max_tokens > max_tokens_)) {
    fail(
        ErrorKind::invalid_request,
        "max_tokens",
        "is {}, the model takes 1 to {}",
        max_tokens,
        max_tokens_);
  }
  int limit = max_tokens > 0 ? max_tokens : max_tokens_;
  auto model = encoder_->summary();
  Encoded encoded;
  size_t cut = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    try {
      auto input = text::encode_model_input(
          *tokenizer_,
          texts[i].first,
          texts[i].second,
          {.max_tokens = limit, .lower_case = lower_case_});
      if (model.types == 1) {
        std::ranges::fill(input.types, 0);
      }
      encoded.dropped.push_back(input.dropped);
      encoded.tokens += static_cast<int64_t>(input.ids.size());
      cut += input.dropped > 0 ? 1 : 0;
      encoded.inputs.push_back({std::move(input.ids), std::move(input.types)});
    } catch (const Error& error) {
      if (texts.size() == 1) {
        throw;
      }
      throw Error(error.kind(), fmt::format("[text {}] {}", i, error.what()));
    }
    check_input(encoded.inputs.back(), model, i);
  }
  if (cut > 0) {
    log_warning(
        "{} of {} texts were cut off at {} tokens",
        cut,
        texts.size(),
        limit);
  }
  return encoded;
}

TextEncoder::Encoded TextEncoder::take(
    std::span<const std::vector<int32_t>> token_lists) const {
  const int vocab_size = encoder_->summary().vocab_size;
  Encoded encoded;
  for (size_t i = 0; i < token_lists.size(); ++i) {
    const auto& ids = token_lists[i];
    const std::string place = fmt::format("text {}", i);
    if (ids.empty()) {
      fail(ErrorKind::invalid_request, place, "has no tokens");
    }
    if (max_tokens_ > 0 && std::cmp_greater(ids.size(), max_tokens_)) {
      fail(
          ErrorKind::invalid_request,
          place,
          "has {} tokens, the model takes {}",
          ids.size(),
          max_tokens_);
    }
    for (int32_t id : ids) {
      if (id < 0 || id >= vocab_size) {
        fail(
            ErrorKind::invalid_request,
            place,
            "token id {} is not from 0 to {}",
            id,
            vocab_size - 1);
      }
    }
    encoded.inputs.push_back({ids, std::vector<int32_t>(ids.size(), 0)});
    encoded.dropped.push_back(0);
    encoded.tokens += static_cast<int64_t>(ids.size());
  }
  return encoded;
}

mx::array TextEncoder::run(
    std::vector<EncoderInput> inputs,
    const std::function<mx::array(const mx::array&, const TokenRows&)>& reduce)
    const {
  // By length: texts of one length run as one product where there is no
  // kernel for any length.
  std::vector<size_t> order(inputs.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](size_t i) {
    return inputs[i].ids.size();
  });
  std::vector<float> results;
  int width = 0;
  for (size_t begin = 0; begin < order.size();) {
    std::vector<EncoderInput> batch;
    size_t end = begin;
    int64_t tokens = 0;
    for (; end < order.size(); ++end) {
      int64_t more = static_cast<int64_t>(inputs[order[end]].ids.size());
      if (end > begin && tokens + more > kBatchTokens) {
        break;
      }
      tokens += more;
      batch.push_back(std::move(inputs[order[end]]));
    }
    TokenRows rows(std::move(batch));
    mx::array reduced = mx::contiguous(
        mx::astype(reduce(encoder_->forward(rows), rows), mx::float32));
    mx::eval(reduced);
    width = reduced.shape(1);
    results.resize(inputs.size() * static_cast<size_t>(width));
    for (size_t i = begin; i < end; ++i) {
      std::memcpy(
          results.data() + order[i] * static_cast<size_t>(width),
          reduced.data<float>() + (i - begin) * static_cast<size_t>(width),
          static_cast<size_t>(width) * sizeof(float));
    }
    begin = end;
  }
  return mx::array(
      results.data(),
      {static_cast<int>(inputs.size()), width},
      mx::float32);
}

}  // namespace mlxx::embed
