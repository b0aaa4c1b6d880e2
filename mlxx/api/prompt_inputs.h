#pragma once

#include <string>
#include <vector>

#include "mlxx/api/field_reader.h"

namespace mlxx::api {

// One text, or the ids of its tokens.
struct PromptInput {
  bool is_tokens = false;
  std::string text;
  std::vector<int32_t> tokens;
};

// A string, a list of strings, a list of token ids or a list of such lists: all
// of one kind, none empty, at most `max_inputs`. Ids are below `vocab_size`, if
// that is known (not 0).
std::vector<PromptInput> read_prompt_inputs(
    const FieldReader& fields,
    std::string_view name,
    size_t max_inputs,
    int vocab_size);

// A list of token ids. `path` is what errors name.
std::vector<int32_t> read_token_ids(
    const OrderedJson& list,
    const std::string& path,
    int vocab_size);

}  // namespace mlxx::api
