#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "mlxx/base/json.h"

namespace mlxx::text {

// What tokenizer_config.json says about the tokens around a text. A token is
// given there as a string or as an object with "content".
struct SpecialTokens {
  std::string bos;  // "" if none
  std::string eos;
  std::optional<bool> add_bos;  // add_bos_token
};

// bad_file that names the key if a value has another type. `place` is what
// errors name.
SpecialTokens read_special_tokens(
    const std::string& tokenizer_config_json,
    const std::string& place = "tokenizer_config.json");

// Every id that config.json (top level and text_config) and
// generation_config.json give as eos_token_id, an integer or a list; null and
// absent add nothing. bad_file that names file and key for anything else. Ids
// of `vocab_size` and above can never be sampled: logged and left out.
std::set<int32_t>
read_eos_ids(const Json& config, const Json& generation_config, int vocab_size);

// What a raw prompt starts with, given its encoding with the tokenizer's
// automatic special tokens: exactly one BOS if the tokenizer asks for one.
std::vector<int32_t> with_single_bos(
    std::vector<int32_t> ids,
    std::optional<int32_t> bos_id,
    std::optional<bool> add_bos,
    bool text_has_bos);

}  // namespace mlxx::text
