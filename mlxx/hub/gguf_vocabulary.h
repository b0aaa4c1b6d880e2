#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/hub/gguf_metadata.h"

namespace mlxx::hub {

enum class GgufTokenType : uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6,
};

// tokenizer.ggml.tokens with their types; the index is the id. Views into the
// mapped file.
struct GgufVocabulary {
  std::vector<std::string_view> tokens;
  std::vector<GgufTokenType> types;  // as many

  // Whether the token has a name of its own. Converters fill holes with empty
  // tokens or unused ones called [PAD7]; these stay holes.
  bool is_named(size_t id) const;
};

// Errors: bad_file if there are no tokens, one is not UTF-8 or stands twice,
// or the types do not fit.
GgufVocabulary read_gguf_vocabulary(const GgufMetadata& metadata);
// In two steps, because the check of every token takes longest and a tokenizer
// that was made from the same values before needs none. A token may be no
// UTF-8 in between.
GgufVocabulary read_unchecked_gguf_vocabulary(const GgufMetadata& metadata);
void check_gguf_vocabulary(
    const GgufMetadata& metadata,
    const GgufVocabulary& vocabulary);

// The id of tokenizer.ggml.<role>_token_id, such as "bos". Absent without the
// key or if the id is outside the vocabulary, as some files have it.
std::optional<int64_t> gguf_special_token(
    const GgufMetadata& metadata,
    const GgufVocabulary& vocabulary,
    std::string_view role);

// Every id that ends an answer, ascending: the eos, eot and eom tokens that
// the file names, and control tokens that are known as ends of turns by their
// text, because many files name only one of several.
std::vector<int64_t> gguf_end_tokens(
    const GgufMetadata& metadata,
    const GgufVocabulary& vocabulary);

// Whether a text starts (ends) with the bos (eos) token.
bool gguf_adds_bos(const GgufMetadata& metadata);
bool gguf_adds_eos(const GgufMetadata& metadata);

}  // namespace mlxx::hub
