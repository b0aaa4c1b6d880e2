#include "mlxx/text/special_literals.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "mlxx/text/tokenizer_impl.h"

namespace mlxx::text {

namespace {

size_t character_length(std::string_view text) {
  size_t length = 1;
  while (length < text.size() && (text[length] & 0xC0) == 0x80) {
    ++length;
  }
  return length;
}

}  // namespace

SpecialLiterals::SpecialLiterals(const Tokenizer& tokenizer, std::string mark)
    : tokenizer_(tokenizer), mark_(std::move(mark)) {
  MlxxBytes json{}, error{};
  int code =
      mlxx_tokenizer_special_literals(tokenizer.impl().handle, &json, &error);
  check_rust(code, error, ErrorKind::internal, "tokenizer");
  literals_ = Json::parse(take_string(json)).get<std::vector<std::string>>();
  std::ranges::stable_sort(literals_, [](const auto& a, const auto& b) {
    return a.size() > b.size();
  });
}

std::string SpecialLiterals::break_up_text(const std::string& text) const {
  bool found = std::ranges::any_of(literals_, [&](const std::string& literal) {
    return text.find(literal) != std::string::npos;
  });
  if (!found) {
    return text;
  }
  std::string out;
  std::string_view rest = text;
  while (!rest.empty()) {
    auto literal = std::ranges::find_if(literals_, [&](const std::string& l) {
      return rest.starts_with(l);
    });
    size_t first = character_length(rest);
    if (literal == literals_.end()) {
      out += rest.substr(0, first);
      rest.remove_prefix(first);
    } else if (literal->size() == first) {
      out += mark_;  // one character: the mark before it says it is plain
      out += *literal;
      rest.remove_prefix(first);
    } else {
      // Only the first character is passed, since another literal may start
      // inside this one.
      out += rest.substr(0, first);
      out += mark_;
      rest.remove_prefix(first);
    }
  }
  return out;
}

OrderedJson SpecialLiterals::break_up(const OrderedJson& json) const {
  if (json.is_string()) {
    return break_up_text(json.get_ref<const std::string&>());
  }
  if (json.is_array()) {
    OrderedJson out = OrderedJson::array();
    for (const OrderedJson& item : json) {
      out.push_back(break_up(item));
    }
    return out;
  }
  if (json.is_object()) {
    OrderedJson out = OrderedJson::object();
    for (const auto& [key, value] : json.items()) {
      out[break_up_text(key)] = break_up(value);
    }
    return out;
  }
  return json;
}

std::vector<int32_t> SpecialLiterals::encode(
    const std::string& rendered) const {
  MlxxBytes ids{}, error{};
  int code = mlxx_tokenizer_encode_marked(
      tokenizer_.impl().handle,
      byte_pointer(rendered),
      rendered.size(),
      byte_pointer(mark_),
      mark_.size(),
      &ids,
      &error);
  check_rust(code, error, ErrorKind::invalid_request, "chat template");
  return take_ids(ids);
}

std::vector<std::string> unused_noncharacters(
    std::string_view text,
    size_t count) {
  std::vector<std::string> out;
  // U+FDD0 to U+FDEE; rust/text/src/marked.rs uses U+FDEF.
  for (int last = 0x90; last <= 0xAE && out.size() < count; ++last) {
    std::string candidate = {'\xEF', '\xB7', static_cast<char>(last)};
    if (text.find(candidate) == std::string_view::npos) {
      out.push_back(std::move(candidate));
    }
  }
  if (out.size() < count) {
    fail(
        ErrorKind::invalid_request,
        "chat template",
        "the messages contain all Unicode noncharacters");
  }
  return out;
}

}  // namespace mlxx::text
