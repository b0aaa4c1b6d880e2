#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/text/tokenizer.h"

namespace mlxx::text {

// Collects the rules of a Lark grammar as llguidance reads them.
class LarkWriter {
 public:
  // Null: no marker is a control token.
  explicit LarkWriter(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // A new name that starts with `stem`; of rules it is lower case, of
  // terminals upper case.
  std::string fresh(std::string_view stem);
  void rule(std::string_view name, std::string_view body);
  // `name` with attributes: "name[lazy]".
  std::string grammar() const;

  // What matches exactly `text`, control tokens in it as themselves. "" for
  // no text.
  std::string literal(std::string_view text) const;
  // Whether the text begins with a control token.
  bool starts_with_control_token(std::string_view text) const;
  bool has_control_token(std::string_view text) const;
  // The text up to and with `end`, of any content but `end`.
  std::string any_up_to(std::string_view end);
  // The same for text that the terminal `body` (a Lark expression) matches.
  std::string terminal_up_to(std::string_view body, std::string_view end);
  // What matches a JSON text of the schema.
  static std::string json(const OrderedJson& schema);

 private:
  // Bytes of the control token at the start of `text`, 0 if there is none.
  size_t control_token(std::string_view text, int32_t& id) const;

  const Tokenizer* tokenizer_;
  std::set<std::string> names_;
  std::string rules_;
};

// As a Lark string.
std::string lark_quote(std::string_view text);

}  // namespace mlxx::text
