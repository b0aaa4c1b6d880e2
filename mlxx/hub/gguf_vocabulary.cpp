#include "mlxx/hub/gguf_vocabulary.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "mlxx/base/error.h"
#include "mlxx/base/utf8.h"

namespace mlxx::hub {

namespace {

constexpr auto kTokens = "tokenizer.ggml.tokens";
constexpr auto kTypes = "tokenizer.ggml.token_type";

constexpr std::string_view kEndTexts[] = {
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<|end|>",
};

bool is_llama3_bpe(const GgufMetadata& metadata) {
  auto pre = metadata.string_if("tokenizer.ggml.pre").value_or("");
  return pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3";
}

}  // namespace

bool GgufVocabulary::is_named(size_t id) const {
  std::string_view token = tokens[id];
  if (token.empty()) {
    return false;
  }
  return types[id] != GgufTokenType::unused ||
      token != fmt::format("[PAD{}]", id);
}

GgufVocabulary read_gguf_vocabulary(const GgufMetadata& metadata) {
  GgufVocabulary vocabulary = read_unchecked_gguf_vocabulary(metadata);
  check_gguf_vocabulary(metadata, vocabulary);
  return vocabulary;
}

GgufVocabulary read_unchecked_gguf_vocabulary(const GgufMetadata& metadata) {
  GgufVocabulary vocabulary;
  vocabulary.tokens = metadata.strings(kTokens);
  size_t count = vocabulary.tokens.size();
  if (count == 0) {
    metadata.fail_at(kTokens, "is missing or empty");
  }
  if (count > INT32_MAX) {
    metadata.fail_at(kTokens, fmt::format("has {} tokens", count));
  }
  vocabulary.types.assign(count, GgufTokenType::normal);
  if (metadata.has(kTypes)) {
    auto types = metadata.integers(kTypes);
    if (types.size() != count) {
      metadata.fail_at(
          kTypes,
          fmt::format("has {} entries for {} tokens", types.size(), count));
    }
    for (size_t i = 0; i < count; ++i) {
      // 0 is "undefined": old converters left it.
      if (types[i] < 0 || types[i] > 6) {
        metadata.fail_at(
            kTypes,
            fmt::format("has the unknown type {} for token {}", types[i], i));
      }
      vocabulary.types[i] =
          static_cast<GgufTokenType>(std::max<int64_t>(types[i], 1));
    }
  }
  return vocabulary;
}

void check_gguf_vocabulary(
    const GgufMetadata& metadata,
    const GgufVocabulary& vocabulary) {
  size_t count = vocabulary.tokens.size();
  std::unordered_set<std::string_view> seen;
  seen.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    std::string_view token = vocabulary.tokens[i];
    if (!is_valid_utf8(token)) {
      metadata.fail_at(
          kTokens,
          fmt::format("holds token {}, which is not valid UTF-8", i));
    }
    if (!token.empty() && !seen.insert(token).second) {
      metadata.fail_at(
          kTokens,
          fmt::format("holds '{}' twice, again as token {}", token, i));
    }
  }
}

std::optional<int64_t> gguf_special_token(
    const GgufMetadata& metadata,
    const GgufVocabulary& vocabulary,
    std::string_view role) {
  auto id = metadata.integer_if(
      fmt::format("tokenizer.ggml.{}_token_id", role),
      INT64_MIN,
      INT64_MAX);
  if (!id || *id < 0 || *id >= static_cast<int64_t>(vocabulary.tokens.size()) ||
      !vocabulary.is_named(static_cast<size_t>(*id))) {
    return std::nullopt;
  }
  return id;
}

std::vector<int64_t> gguf_end_tokens(
    const GgufMetadata& metadata,
    const GgufVocabulary& vocabulary) {
  std::set<int64_t> ids;
  for (const char* role : {"eos", "eot", "eom"}) {
    if (auto id = gguf_special_token(metadata, vocabulary, role)) {
      ids.insert(*id);
    }
  }
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.types[i] == GgufTokenType::control &&
        std::ranges::find(kEndTexts, vocabulary.tokens[i]) !=
            std::end(kEndTexts)) {
      ids.insert(static_cast<int64_t>(i));
    }
  }
  return {ids.begin(), ids.end()};
}

bool gguf_adds_bos(const GgufMetadata& metadata) {
  // Without the key, SentencePiece vocabularies and Llama 3's begin with it.
  bool usual = metadata.string_if("tokenizer.ggml.model") == "llama" ||
      is_llama3_bpe(metadata);
  return metadata.boolean_if("tokenizer.ggml.add_bos_token").value_or(usual);
}

bool gguf_adds_eos(const GgufMetadata& metadata) {
  return metadata.boolean_if("tokenizer.ggml.add_eos_token").value_or(false);
}

}  // namespace mlxx::hub
