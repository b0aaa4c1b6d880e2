#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/text/tokenizer.h"

namespace mlxx::text {

// Keeps control tokens that a user spelled out apart from the template's own.
// break_up() puts a mark into each literal inside a message, the template is
// rendered, and encode() takes only unbroken literals for control tokens.
class SpecialLiterals {
 public:
  // `mark` is a character that is in no message.
  SpecialLiterals(const Tokenizer& tokenizer, std::string mark);

  // A copy in which every string, keys included, has its literals broken.
  OrderedJson break_up(const OrderedJson& json) const;

  std::vector<int32_t> encode(const std::string& rendered) const;

 private:
  std::string break_up_text(const std::string& text) const;

  const Tokenizer& tokenizer_;
  std::string mark_;
  std::vector<std::string> literals_;  // longest first
};

// The first Unicode noncharacters (which may not stand in interchanged text)
// that `text` does not contain. invalid_request if it contains nearly all.
std::vector<std::string> unused_noncharacters(
    std::string_view text,
    size_t count);

}  // namespace mlxx::text
