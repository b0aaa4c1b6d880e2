#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "mlxx/base/json.h"
#include "mlxx/text/tokenizer.h"

namespace mlxx::generate {

inline std::string utf8_of(uint32_t code) {
  std::string text;
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else {
    text += static_cast<char>(0xc0 | (code >> 6));
    text += static_cast<char>(0x80 | (code & 0x3f));
  }
  return text;
}

// A byte-level BPE tokenizer: token b is byte b, then come the words (and the
// steps of merging them), then <s>, </s>, <end> as special tokens. With
// `automatic_bos` its post-processor puts <s> first.
inline std::string tiny_tokenizer_json(
    const std::vector<std::string>& words,
    bool automatic_bos) {
  // GPT-2's printable stand-in for each byte.
  std::vector<std::string> letters;
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    bool printable = (byte >= 0x21 && byte <= 0x7e) ||
        (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    letters.push_back(utf8_of(printable ? byte : next++));
  }
  Json vocabulary = Json::object();
  Json merges = Json::array();
  int id = 0;
  for (const std::string& letter : letters) {
    vocabulary[letter] = id++;
  }
  for (const std::string& word : words) {
    std::string made = letters[static_cast<uint8_t>(word[0])];
    for (size_t i = 1; i < word.size(); ++i) {
      const std::string& letter = letters[static_cast<uint8_t>(word[i])];
      std::string longer = made + letter;
      if (!vocabulary.contains(longer)) {
        merges.push_back({made, letter});
        vocabulary[longer] = id++;
      }
      made = longer;
    }
  }
  Json added = Json::array();
  for (const char* special : {"<s>", "</s>", "<end>"}) {
    added.push_back(
        {{"id", id++},
         {"content", special},
         {"single_word", false},
         {"lstrip", false},
         {"rstrip", false},
         {"normalized", false},
         {"special", true}});
  }
  Json bytes = {
      {"type", "ByteLevel"},
      {"add_prefix_space", false},
      {"trim_offsets", true},
      {"use_regex", false}};
  Json post = nullptr;
  if (automatic_bos) {
    Json bos = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
    Json sequence = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    post = {
        {"type", "TemplateProcessing"},
        {"single", {bos, sequence}},
        {"pair", {bos, sequence, sequence}},
        {"special_tokens",
         {{"<s>",
           {{"id", "<s>"},
            {"ids", Json::array({id - 3})},
            {"tokens", Json::array({"<s>"})}}}}}};
  }
  Json tokenizer = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", bytes},
      {"post_processor", post},
      {"decoder", bytes},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", false},
        {"vocab", vocabulary},
        {"merges", merges}}}};
  return tokenizer.dump();
}

inline std::shared_ptr<const text::Tokenizer> tiny_tokenizer(
    const std::vector<std::string>& words = {"hi"},
    bool automatic_bos = false) {
  return text::Tokenizer::from_json(tiny_tokenizer_json(words, automatic_bos));
}

}  // namespace mlxx::generate
