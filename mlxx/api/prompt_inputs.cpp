#include "mlxx/api/prompt_inputs.h"

#include <climits>

#include <nlohmann/json.hpp>

#include "mlxx/api/answer.h"
#include "mlxx/base/utf8.h"

namespace mlxx::api {

namespace {

constexpr size_t kMaxTokens = size_t{1} << 24;

[[noreturn]] void refuse(const std::string& path, std::string_view what) {
  throw RequestError(
      400,
      fmt::format("[{}] {}", path, what),
      path,
      "invalid_value");
}

PromptInput text_input(const OrderedJson& value, const std::string& path) {
  PromptInput out;
  out.text = value.get<std::string>();
  if (out.text.empty()) {
    refuse(path, "must not be empty");
  }
  if (!is_valid_utf8(out.text)) {
    refuse(path, "is not valid UTF-8");
  }
  return out;
}

PromptInput
token_input(const OrderedJson& list, const std::string& path, int vocab_size) {
  PromptInput out;
  out.is_tokens = true;
  out.tokens = read_token_ids(list, path, vocab_size);
  if (out.tokens.empty()) {
    refuse(path, "must not be empty");
  }
  return out;
}

}  // namespace

std::vector<int32_t> read_token_ids(
    const OrderedJson& list,
    const std::string& path,
    int vocab_size) {
  if (!list.is_array()) {
    refuse(path, type_problem("a list of token ids", list));
  }
  if (list.size() > kMaxTokens) {
    refuse(path, fmt::format("has more than {} tokens", kMaxTokens));
  }
  std::vector<int32_t> out;
  out.reserve(list.size());
  const int last = vocab_size > 0 ? vocab_size - 1 : INT_MAX;
  for (const OrderedJson& item : list) {
    const auto id = whole_number(item, 0, last);
    if (!id) {
      refuse(
          path,
          fmt::format("must be a list of token ids from 0 to {}", last));
    }
    out.push_back(static_cast<int32_t>(*id));
  }
  return out;
}

std::vector<PromptInput> read_prompt_inputs(
    const FieldReader& fields,
    std::string_view name,
    size_t max_inputs,
    int vocab_size) {
  const OrderedJson* given = fields.find(name);
  if (!given) {
    fields.missing(name);
  }
  const std::string path = fields.path(name);
  if (given->is_string()) {
    return {text_input(*given, path)};
  }
  if (!given->is_array()) {
    fields.refuse(
        name,
        type_problem("a string, a list of strings or of token ids", *given),
        "invalid_type");
  }
  if (given->empty()) {
    refuse(path, "must not be empty");
  }
  const OrderedJson& first = (*given)[0];
  if (first.is_number()) {
    return {token_input(*given, path, vocab_size)};
  }
  if (!first.is_string() && !first.is_array()) {
    refuse(path, type_problem("a list of strings or of token ids", first));
  }
  fields.list(name, max_inputs);
  std::vector<PromptInput> out;
  for (size_t i = 0; i < given->size(); ++i) {
    const OrderedJson& item = (*given)[i];
    const std::string place = fmt::format("{}[{}]", path, i);
    if (item.is_string() != first.is_string() ||
        item.is_array() != first.is_array()) {
      refuse(place, "must be of the same kind as the others");
    }
    out.push_back(
        item.is_string() ? text_input(item, place)
                         : token_input(item, place, vocab_size));
  }
  return out;
}

}  // namespace mlxx::api
