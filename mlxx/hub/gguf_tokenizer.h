#pragma once

#include <string>

#include "mlxx/hub/checkpoint.h"
#include "mlxx/hub/gguf_vocabulary.h"

namespace mlxx::hub {

// tokenizer.json, tokenizer_config.json and the chat templates that the
// metadata describe. Errors: bad_file; unsupported for a tokenizer.ggml.model
// or .pre that is not known, naming it.
TextFiles make_gguf_text(const GgufMetadata& metadata);
// Its parts, with the vocabulary read from it.
std::string make_gguf_tokenizer_json(
    const GgufMetadata& metadata,
    const GgufVocabulary& vocabulary);
TextFiles make_gguf_text_beside_tokenizer(
    const GgufMetadata& metadata,
    const GgufVocabulary& vocabulary);

// SHA-256 of every "tokenizer." key with its value.
std::string gguf_tokenizer_digest(const GgufMetadata& metadata);

// The "normalizer" and "pre_tokenizer" members of tokenizer.json for a
// byte-level BPE, and whether whole words bypass the merges. Each `pre` stands
// for one split of text into words, so a wrong one gives other ids silently.
struct PreTokenizer {
  std::string_view normalizer;     // JSON
  std::string_view pre_tokenizer;  // JSON
  bool ignore_merges;
};
PreTokenizer find_pre_tokenizer(const GgufMetadata& metadata);

// The merges of a SentencePiece vocabulary in the order that gives the same
// result as its scores: best score of the merged token first. Pairs of ids.
std::vector<std::pair<uint32_t, uint32_t>> merges_from_scores(
    const GgufVocabulary& vocabulary,
    const std::vector<float>& scores);

}  // namespace mlxx::hub
