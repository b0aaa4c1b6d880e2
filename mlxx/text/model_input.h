#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "mlxx/text/tokenizer.h"

namespace mlxx::text {

// What an encoder reads of one text or of a pair: ids with the special tokens
// of the tokenizer's post-processor ([CLS] and [SEP], an end token), and the
// type of each (which text of a pair it belongs to). Control tokens that are
// spelled out in the text are read as such, as transformers does.
struct ModelInput {
  std::vector<int32_t> ids;    // [L]
  std::vector<int32_t> types;  // [L]
  int dropped = 0;             // tokens cut off to fit
};

struct ModelInputOptions {
  // Special tokens included; 0 means no limit. Of a pair the longer text is
  // cut first, at its end.
  int max_tokens = 0;
  bool lower_case = false;
};

// Both texts must be valid UTF-8 of at most 16 MiB (invalid_request), as is a
// limit that leaves no room beside the special tokens.
ModelInput encode_model_input(
    const Tokenizer& tokenizer,
    std::string_view first,
    std::optional<std::string_view> second = std::nullopt,
    const ModelInputOptions& options = {});

}  // namespace mlxx::text
