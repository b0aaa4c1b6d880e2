#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "mlxx/base/error.h"

// The C interface of rust/text (see abi.rs there). Only mlxx/text includes it.

extern "C" {

struct MlxxBytes {
  uint8_t* data;
  size_t length;
  size_t capacity;
};
void mlxx_text_free(MlxxBytes bytes);

struct MlxxTokenizer;
int mlxx_tokenizer_new(
    const uint8_t* json,
    size_t length,
    MlxxTokenizer** out,
    MlxxBytes* error);
int mlxx_tokenizer_from_packed(
    const uint8_t* packed,
    size_t length,
    MlxxTokenizer** out,
    MlxxBytes* error);
const uint8_t* mlxx_tokenizer_packed(
    const MlxxTokenizer* tokenizer,
    size_t* length);
MlxxBytes mlxx_tokenizer_packed_format();
void mlxx_tokenizer_free(MlxxTokenizer* tokenizer);
uint32_t mlxx_tokenizer_vocab_size(const MlxxTokenizer* tokenizer);
int mlxx_tokenizer_encode(
    const MlxxTokenizer* tokenizer,
    const uint8_t* text,
    size_t length,
    bool add_special_tokens,
    bool parse_special,
    MlxxBytes* ids,
    MlxxBytes* error);
int mlxx_tokenizer_decode(
    const MlxxTokenizer* tokenizer,
    const uint32_t* ids,
    size_t count,
    bool skip_special_tokens,
    MlxxBytes* text,
    MlxxBytes* error);
int64_t mlxx_tokenizer_token_to_id(
    const MlxxTokenizer* tokenizer,
    const uint8_t* token,
    size_t length);
int mlxx_tokenizer_id_to_token(
    const MlxxTokenizer* tokenizer,
    uint32_t id,
    MlxxBytes* token,
    MlxxBytes* error);
int mlxx_tokenizer_token_bytes(
    const MlxxTokenizer* tokenizer,
    uint32_t id,
    MlxxBytes* bytes,
    MlxxBytes* error);
bool mlxx_tokenizer_is_special(const MlxxTokenizer* tokenizer, uint32_t id);
int mlxx_tokenizer_special_literals(
    const MlxxTokenizer* tokenizer,
    MlxxBytes* json,
    MlxxBytes* error);
int mlxx_tokenizer_encode_marked(
    const MlxxTokenizer* tokenizer,
    const uint8_t* text,
    size_t length,
    const uint8_t* mark,
    size_t mark_length,
    MlxxBytes* ids,
    MlxxBytes* error);

int mlxx_tokenizer_encode_input(
    const MlxxTokenizer* tokenizer,
    const uint8_t* first,
    size_t first_length,
    const uint8_t* second,
    size_t second_length,
    bool lower_case,
    size_t longest,
    MlxxBytes* out,
    MlxxBytes* error);

struct MlxxStream;
MlxxStream* mlxx_stream_new(
    const MlxxTokenizer* tokenizer,
    bool skip_special_tokens);
void mlxx_stream_free(MlxxStream* stream);
int mlxx_stream_step(
    MlxxStream* stream,
    uint32_t id,
    MlxxBytes* text,
    MlxxBytes* error);
int mlxx_stream_flush(MlxxStream* stream, MlxxBytes* text, MlxxBytes* error);

struct MlxxTemplate;
int mlxx_template_new(
    const uint8_t* source,
    size_t length,
    MlxxTemplate** out,
    MlxxBytes* error);
void mlxx_template_free(MlxxTemplate* chat_template);
int mlxx_template_render(
    const MlxxTemplate* chat_template,
    const uint8_t* context,
    size_t length,
    int64_t unix_time,
    MlxxBytes* text,
    MlxxBytes* error);

struct MlxxGrammarTokens;
int mlxx_grammar_tokens_new(
    const MlxxTokenizer* tokenizer,
    size_t vocabulary_size,
    const uint32_t* eos,
    size_t eos_count,
    MlxxGrammarTokens** out,
    MlxxBytes* error);
void mlxx_grammar_tokens_free(MlxxGrammarTokens* tokens);

struct MlxxMatcher;
int mlxx_matcher_new(
    const MlxxGrammarTokens* tokens,
    uint32_t kind,
    const uint8_t* grammar,
    size_t length,
    MlxxMatcher** out,
    MlxxBytes* error);
int mlxx_matcher_clone(
    const MlxxMatcher* matcher,
    MlxxMatcher** out,
    MlxxBytes* error);
void mlxx_matcher_free(MlxxMatcher* matcher);
int mlxx_matcher_mask(
    const MlxxGrammarTokens* tokens,
    MlxxMatcher* matcher,
    uint32_t* mask,
    size_t words,
    MlxxBytes* error);
int mlxx_matcher_validate(
    MlxxMatcher* matcher,
    const uint32_t* tokens,
    size_t count,
    size_t* taken,
    MlxxBytes* error);
int mlxx_matcher_commit(
    MlxxMatcher* matcher,
    uint32_t token,
    bool* taken,
    MlxxBytes* error);
int mlxx_matcher_rollback(MlxxMatcher* matcher, size_t count, MlxxBytes* error);
int mlxx_matcher_is_accepting(
    MlxxMatcher* matcher,
    bool* accepting,
    MlxxBytes* error);
bool mlxx_matcher_is_stopped(const MlxxMatcher* matcher);
int mlxx_matcher_forced(MlxxMatcher* matcher, MlxxBytes* ids, MlxxBytes* error);
}

namespace mlxx::text {

inline const uint8_t* byte_pointer(std::string_view text) {
  return reinterpret_cast<const uint8_t*>(text.data());
}

// Takes the bytes over.
inline std::string take_string(MlxxBytes bytes) {
  std::string out(reinterpret_cast<const char*>(bytes.data), bytes.length);
  mlxx_text_free(bytes);
  return out;
}

// Code 0 returns; the others throw: 1 as `kind`, 2 (raised by a template) as
// invalid_request with the bare message, 3 (a panic) as internal.
inline void check_rust(
    int code,
    const MlxxBytes& error,
    ErrorKind kind,
    std::string_view place) {
  if (code == 0) {
    return;
  }
  std::string message = take_string(error);
  if (code == 2) {
    fail(ErrorKind::invalid_request, place, "{}", message);
  }
  fail(code == 3 ? ErrorKind::internal : kind, place, "{}", message);
}

}  // namespace mlxx::text
