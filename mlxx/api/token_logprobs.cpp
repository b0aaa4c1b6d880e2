#include "mlxx/api/token_logprobs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/utf8.h"

namespace mlxx::api {

namespace {

// OpenAI's value for what cannot be; JSON has no -inf.
double finite(float logprob) {
  return std::isfinite(logprob) ? std::max<double>(logprob, -9999.0) : -9999.0;
}

OrderedJson byte_list(const std::string& bytes) {
  OrderedJson out = OrderedJson::array();
  for (char byte : bytes) {
    out.push_back(static_cast<uint8_t>(byte));
  }
  return out;
}

OrderedJson
one_token(int32_t id, float logprob, const text::Tokenizer& tokenizer) {
  const std::string bytes = tokenizer.token_bytes(id);
  return {
      {"token", replace_invalid_utf8(bytes)},
      {"logprob", finite(logprob)},
      {"bytes", byte_list(bytes)}};
}

// Unique for each token, also where it is a part of a character.
std::string legacy_name(const std::string& bytes) {
  if (is_valid_utf8(bytes)) {
    return bytes;
  }
  std::string out = "bytes:";
  for (char byte : bytes) {
    out += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
  }
  return out;
}

size_t characters_begun(const std::string& bytes) {
  return static_cast<size_t>(
      std::count_if(bytes.begin(), bytes.end(), [](char byte) {
        return (static_cast<uint8_t>(byte) & 0xc0) != 0x80;
      }));
}

}  // namespace

OrderedJson chat_logprob(
    const engine::AnswerToken& token,
    const text::Tokenizer& tokenizer) {
  OrderedJson out = one_token(token.token, token.logprob, tokenizer);
  OrderedJson top = OrderedJson::array();
  for (const engine::TokenLogprob& other : token.top) {
    top.push_back(one_token(other.token, other.logprob, tokenizer));
  }
  out["top_logprobs"] = std::move(top);
  return out;
}

void LegacyLogprobs::add(
    const engine::AnswerToken& token,
    const text::Tokenizer& tokenizer,
    bool shown) {
  const std::string bytes = tokenizer.token_bytes(token.token);
  const bool known = !std::isnan(token.logprob);  // not so of a first token
  tokens_.push_back(legacy_name(bytes));
  offsets_.push_back(characters_);
  logprobs_.push_back(
      known ? OrderedJson(finite(token.logprob)) : OrderedJson(nullptr));
  OrderedJson top;
  if (known && top_ > 0) {
    top = OrderedJson::object();
    for (const engine::TokenLogprob& other : token.top) {
      top[legacy_name(tokenizer.token_bytes(other.token))] =
          finite(other.logprob);
    }
  }
  alternatives_.push_back(std::move(top));
  characters_ += shown ? characters_begun(bytes) : 0;
}

OrderedJson LegacyLogprobs::take() {
  if (tokens_.empty()) {
    return nullptr;
  }
  OrderedJson out = OrderedJson::object();
  out["tokens"] = std::exchange(tokens_, {});
  out["token_logprobs"] = std::exchange(logprobs_, {});
  auto alternatives = std::exchange(alternatives_, {});
  out["top_logprobs"] =
      top_ > 0 ? OrderedJson(std::move(alternatives)) : OrderedJson(nullptr);
  out["text_offset"] = std::exchange(offsets_, {});
  return out;
}

}  // namespace mlxx::api
