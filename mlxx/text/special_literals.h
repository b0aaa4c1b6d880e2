#pragma once

#include <string>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/text/tokenizer.h"

namespace mlxx::text {

// Keeps control tokens that a user spelled out apart from the template's own.
// break_up() puts a mark into each literal inside a message, the template is
// rendered, and encode() takes only unbroken literals for control tokens.
class SpecialLiterals {
 public:
  explicit SpecialLiterals(const Tokenizer& tokenizer);

  // A copy in which every string, keys included, has its literals broken.
  OrderedJson break_up(const OrderedJson& json) const;

  std::vector<int32_t> encode(const std::string& rendered) const;

 private:
  std::string break_up_text(const std::string& text) const;

  const Tokenizer& tokenizer_;
  std::vector<std::string> literals_;  // longest first
};

}  // namespace mlxx::text
