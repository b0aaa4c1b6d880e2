#pragma once

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "mlxx/text/grammar.h"
#include "mlxx/text/tool_format.h"
#include "tests/generate/tiny_tokenizer.h"

namespace mlxx::text {

constexpr int kVocabulary = 640;

// Bytes, some longer tokens, and if asked for the format's markers as control
// tokens.
inline std::shared_ptr<const Tokenizer> tokenizer_for(
    const ToolFormat& format,
    bool control_tokens) {
  Json json = parse_json(
      generate::tiny_tokenizer_json(
          {"\", \"",
           "\": ",
           "</",
           "name",
           "<tool_call>\n{",
           "get_weather",
           "celsius",
           "Paris",
           "\n</",
           "}}",
           ">\n",
           "true",
           "tool",
           " the "},
          false),
      "tokenizer");
  int id = 0;
  for (const Json& token : json["added_tokens"]) {
    id = std::max(id, token["id"].get<int>());
  }
  for (const std::string& marker : format.visible_tokens()) {
    Json token = json["added_tokens"][0];
    token["id"] = ++id;
    token["content"] = marker;
    token["special"] = control_tokens;
    json["added_tokens"].push_back(token);
  }
  return Tokenizer::from_json(json.dump());
}

struct Grammar {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const GrammarTokens> tokens;
  int32_t eos = 0;

  Grammar(const ToolFormat& format, bool control_tokens)
      : tokenizer(tokenizer_for(format, control_tokens)) {
    eos = *tokenizer->token_to_id("</s>");
    tokens = GrammarTokens::make(*tokenizer, kVocabulary, {&eos, 1});
  }
  GrammarMatcher matcher(const std::string& grammar) const {
    return GrammarMatcher(tokens, GrammarKind::lark, grammar);
  }
  bool accepts(const std::string& grammar, std::string_view text) const {
    GrammarMatcher matcher = this->matcher(grammar);
    for (int32_t token : tokenizer->encode(text)) {
      if (!matcher.commit(token)) {
        return false;
      }
    }
    return matcher.is_accepting();
  }
};

// What ends a text of any content in that format.
inline std::vector<std::string> ends_of(std::string_view format) {
  std::vector<std::string> ends = {"\""};
  const std::pair<const char*, const char*> kTags[] = {
      {"qwen3_coder", "\n</parameter>\n"},
      {"seed_oss", "\n</parameter>\n"},
      {"minimax_m2", "</parameter>\n"},
      {"muse", "</atem:parameter>\n"},
      {"deepseek_v32", "</｜DSML｜parameter>\n"},
      {"deepseek_v4", "</｜DSML｜parameter>\n"},
      {"glm47", "</arg_value>\n"},
      {"longcat", "</longcat_arg_value>\n"},
      {"minicpm5", "</param>"},
      {"function_gemma", "<escape>"},
      {"gemma4", "<|\"|>"}};
  for (auto [name, end] : kTags) {
    if (format == name) {
      ends.push_back(end);
    }
  }
  return ends;
}

inline bool calls_have_begun(
    const Grammar& grammar,
    const std::vector<int32_t>& tokens) {
  std::string text = grammar.tokenizer->decode(tokens);
  return text.find("to=functions") != text.npos ||
      text.find("<|message|>") == text.npos;
}

// Walks through what the masks allow, at random; where anything goes, tries
// now and then what may end it, or the answer would never.
inline std::string walk(
    const Grammar& grammar,
    const std::string& lark,
    const std::vector<std::string>& ends,
    std::mt19937& random) {
  GrammarMatcher matcher = grammar.matcher(lark);
  std::vector<int32_t> tokens;
  for (int step = 0; step < 5000; ++step) {
    std::vector<uint32_t> mask(grammar.tokens->mask_words());
    matcher.mask(mask);
    std::vector<int32_t> allowed;
    for (int32_t token = 0; token < kVocabulary; ++token) {
      if ((mask[static_cast<size_t>(token) / 32] >> (token % 32)) & 1) {
        allowed.push_back(token);
      }
    }
    if (allowed.empty()) {
      ADD_FAILURE() << "nothing is allowed";
      break;
    }
    bool may_end =
        ((mask[static_cast<size_t>(grammar.eos) / 32] >> (grammar.eos % 32)) &
         1) != 0;
    if (may_end && (allowed.size() == 1 || random() % 4 == 0)) {
      return grammar.tokenizer->decode(tokens);
    }
    bool ended = false;
    if (allowed.size() > 50 && random() % 3 == 0) {
      // Not inside of arguments: there the text of a marker would be one.
      bool second = !calls_have_begun(grammar, tokens) && random() % 2 == 0;
      std::string end = second ? "<|end|>" : ends[random() % ends.size()];
      std::vector<int32_t> ids = grammar.tokenizer->encode(end);
      if (matcher.validate(ids) == ids.size()) {
        for (int32_t id : ids) {
          EXPECT_TRUE(matcher.commit(id));
          tokens.push_back(id);
        }
        ended = true;
      }
    }
    if (ended) {
      continue;
    }
    int32_t token = allowed[random() % allowed.size()];
    // Plain letters where anything goes: what is written stays readable.
    for (int tries = 0; allowed.size() > 50 && tries < 20; ++tries) {
      if (token != grammar.eos && token >= ' ' && token < 127) {
        break;
      }
      token = allowed[random() % allowed.size()];
    }
    if (token == grammar.eos) {
      return grammar.tokenizer->decode(tokens);
    }
    EXPECT_TRUE(matcher.commit(token));
    tokens.push_back(token);
  }
  ADD_FAILURE() << "no end: " << grammar.tokenizer->decode(tokens);
  return "";
}

}  // namespace mlxx::text
