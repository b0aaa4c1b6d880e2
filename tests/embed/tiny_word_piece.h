#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "mlxx/base/json.h"

namespace mlxx::embed {

// tokenizer.json of a WordPiece model as BERT's: special tokens, the letters
// and some words. It keeps case, and carries a truncation to be ignored.
inline Json word_piece_json() {
  Json vocabulary = Json::object();
  int id = 0;
  for (const char* special : {"[PAD]", "[UNK]", "[CLS]", "[SEP]"}) {
    vocabulary[special] = id++;
  }
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    vocabulary[std::string(1, letter)] = id++;
    vocabulary["##" + std::string(1, letter)] = id++;
  }
  for (const char* word : {"the", "capital", "of", "paris", "rome", ".", "?"}) {
    vocabulary[word] = id++;
  }
  Json added = Json::array();
  for (const char* special : {"[PAD]", "[UNK]", "[CLS]", "[SEP]"}) {
    added.push_back(
        {{"id", vocabulary[special]},
         {"content", special},
         {"single_word", false},
         {"lstrip", false},
         {"rstrip", false},
         {"normalized", false},
         {"special", true}});
  }
  auto special = [](const char* name, int type) {
    return Json{{"SpecialToken", {{"id", name}, {"type_id", type}}}};
  };
  auto sequence = [](const char* name, int type) {
    return Json{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  auto meaning = [&](const char* name) {
    return Json{{"id", name}, {"ids", {vocabulary[name]}}, {"tokens", {name}}};
  };
  return {
      {"version", "1.0"},
      {"truncation",
       {{"max_length", 5},
        {"strategy", "LongestFirst"},
        {"stride", 0},
        {"direction", "Right"}}},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer",
       {{"type", "BertNormalizer"},
        {"clean_text", true},
        {"handle_chinese_chars", true},
        {"strip_accents", nullptr},
        {"lowercase", false}}},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single",
         {special("[CLS]", 0), sequence("A", 0), special("[SEP]", 0)}},
        {"pair",
         {special("[CLS]", 0),
          sequence("A", 0),
          special("[SEP]", 0),
          sequence("B", 1),
          special("[SEP]", 1)}},
        {"special_tokens",
         {{"[CLS]", meaning("[CLS]")}, {"[SEP]", meaning("[SEP]")}}}}},
      {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
      {"model",
       {{"type", "WordPiece"},
        {"unk_token", "[UNK]"},
        {"continuing_subword_prefix", "##"},
        {"max_input_chars_per_word", 100},
        {"vocab", vocabulary}}}};
}

}  // namespace mlxx::embed
