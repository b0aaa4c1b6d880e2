#include "mlxx/text/special_tokens.h"

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/log.h"

namespace mlxx::text {

namespace {

std::string token_text(const JsonView& config, const char* key) {
  if (!config.has(key)) {
    return {};
  }
  const Json& value = config.json().at(key);
  if (value.is_string()) {
    return value.get<std::string>();
  }
  if (value.is_object() && value.contains("content") &&
      value.at("content").is_string()) {
    return value.at("content").get<std::string>();
  }
  config.fail_at(key, "must be a string or an object with \"content\"");
}

void add_ids(const Json& config, const char* place, std::set<int32_t>& ids) {
  auto found = config.find("eos_token_id");
  if (found == config.end() || found->is_null()) {
    return;
  }
  auto add = [&](const Json& value) {
    bool fits = value.is_number_integer() &&
        (value.is_number_unsigned()
             ? value.get<uint64_t>() <= INT32_MAX
             : value.get<int64_t>() >= 0 && value.get<int64_t>() <= INT32_MAX);
    if (!fits) {
      fail(
          ErrorKind::bad_file,
          place,
          "eos_token_id must be a token id or a list of them, found {}",
          value.dump(-1, ' ', false, Json::error_handler_t::replace));
    }
    ids.insert(value.get<int32_t>());
  };
  if (found->is_array()) {
    for (const Json& value : *found) {
      add(value);
    }
  } else {
    add(*found);
  }
}

}  // namespace

SpecialTokens read_special_tokens(
    const std::string& tokenizer_config_json,
    const std::string& place) {
  Json config = parse_json(tokenizer_config_json, place);
  JsonView view(config, place);
  SpecialTokens tokens;
  tokens.bos = token_text(view, "bos_token");
  tokens.eos = token_text(view, "eos_token");
  if (view.has("add_bos_token")) {
    tokens.add_bos = view.boolean("add_bos_token");
  }
  return tokens;
}

std::set<int32_t> read_eos_ids(
    const Json& config,
    const Json& generation_config,
    int vocab_size) {
  std::set<int32_t> ids;
  if (config.is_object()) {
    add_ids(config, "config.json", ids);
    auto text = config.find("text_config");
    if (text != config.end() && text->is_object()) {
      add_ids(*text, "config.json text_config", ids);
    }
  }
  if (generation_config.is_object()) {
    add_ids(generation_config, "generation_config.json", ids);
  }
  if (vocab_size > 0) {
    auto outside = ids.lower_bound(vocab_size);
    if (outside != ids.end()) {
      log_warning(
          "eos_token_id {} is outside the vocabulary of {} and was left out",
          *outside,
          vocab_size);
      ids.erase(outside, ids.end());
    }
  }
  return ids;
}

std::vector<int32_t> with_single_bos(
    std::vector<int32_t> ids,
    std::optional<int32_t> bos_id,
    std::optional<bool> add_bos,
    bool text_has_bos) {
  if (!bos_id) {
    return ids;
  }
  size_t count = 0;
  while (count < ids.size() && ids[count] == *bos_id) {
    ++count;
  }
  bool wanted = text_has_bos || add_bos.value_or(count > 0);
  ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
  if (wanted) {
    ids.insert(ids.begin(), *bos_id);
  }
  return ids;
}

}  // namespace mlxx::text
