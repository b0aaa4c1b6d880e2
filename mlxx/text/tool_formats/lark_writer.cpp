#include "mlxx/text/tool_formats/lark_writer.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "mlxx/text/tool_formats/call_writer.h"
#include "mlxx/text/tool_formats/schema_view.h"

namespace mlxx::text {

std::string lark_quote(std::string_view text) {
  return json_quote(text);
}

std::string LarkWriter::fresh(std::string_view stem) {
  for (int i = 0;; ++i) {
    std::string name = fmt::format("{}_{}", stem, i);
    if (names_.insert(name).second) {
      return name;
    }
  }
}

void LarkWriter::rule(std::string_view name, std::string_view body) {
  rules_ += fmt::format("{}: {}\n", name, body.empty() ? "\"\"" : body);
}

std::string LarkWriter::grammar() const {
  return rules_;
}

size_t LarkWriter::control_token(std::string_view text, int32_t& id) const {
  // Markers are short; the longest token wins.
  if (tokenizer_ == nullptr) {
    return 0;
  }
  constexpr size_t kLongest = 64;
  for (size_t size = std::min(text.size(), kLongest); size > 1; --size) {
    auto token = tokenizer_->token_to_id(text.substr(0, size));
    if (token && tokenizer_->is_special(*token)) {
      id = *token;
      return size;
    }
  }
  return 0;
}

bool LarkWriter::starts_with_control_token(std::string_view text) const {
  int32_t id = 0;
  return control_token(text, id) > 0;
}

bool LarkWriter::has_control_token(std::string_view text) const {
  for (size_t at = 0; at < text.size(); ++at) {
    if (starts_with_control_token(text.substr(at))) {
      return true;
    }
  }
  return false;
}

std::string LarkWriter::literal(std::string_view text) const {
  std::string out;
  std::string plain;
  auto flush = [&] {
    if (!plain.empty()) {
      out += fmt::format("{}{}", out.empty() ? "" : " ", lark_quote(plain));
      plain.clear();
    }
  };
  while (!text.empty()) {
    int32_t id = 0;
    size_t size = control_token(text, id);
    if (size > 0) {
      flush();
      out += fmt::format("{}<[{}]>", out.empty() ? "" : " ", id);
      text.remove_prefix(size);
    } else {
      plain += text.front();
      text.remove_prefix(1);
    }
  }
  flush();
  return out;
}

std::string LarkWriter::any_up_to(std::string_view end) {
  return terminal_up_to("/(?s:.*)/", end);
}

std::string LarkWriter::terminal_up_to(
    std::string_view body,
    std::string_view end) {
  std::string text = fresh("TEXT");
  rule(text, body);
  if (has_control_token(end)) {
    // No text holds a control token, so it ends by itself, and what is plain
    // in front of the token is part of the text.
    while (!starts_with_control_token(end)) {
      end.remove_prefix(1);
    }
    std::string name = fresh("value");
    rule(name, fmt::format("{} {}", text, literal(end)));
    return name;
  }
  std::string name = fresh("value");
  rules_ += fmt::format("{}[lazy]: {} {}\n", name, text, lark_quote(end));
  return name;
}

std::string LarkWriter::json(const OrderedJson& schema) {
  OrderedJson compact = without_annotations(schema);
  // As rust/text does for whole answers: white space is bounded.
  if (compact.is_object() && !compact.contains("x-guidance")) {
    compact["x-guidance"] = {
        {"whitespace_flexible", false},
        {"item_separator", ", "},
        {"key_separator", ": "}};
  }
  return fmt::format("%json {}", compact.dump());
}

}  // namespace mlxx::text
