#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/data/sample_reader.h"
#include "mlxx/data/training_data.h"
#include "mlxx/text/special_literals.h"

namespace mlxx::data {

// Texts and conversations -> tokens with targets, of any length. The first
// token is never a target, since nothing predicts it. Thread-safe.
class RowEncoder {
 public:
  RowEncoder(
      const text::Tokenizer& tokenizer,
      const text::ChatTemplate* chat_template,
      const DataOptions& options,
      int64_t unix_time);

  bool has_template() const {
    return chat_template_ != nullptr;
  }

  // A whole text, closed by the EOS unless it ends with it.
  TokenRow text(std::string_view text) const;
  // An answer that follows its prompt without anything between them, closed
  // by the EOS. Targets are the answer's.
  TokenRow completion(std::string_view prompt, std::string_view answer) const;
  // Through the chat template, closed as it does. `only_answers`: targets are
  // what the assistant wrote from message `first_answer` on. Control tokens
  // spelled out in messages stay plain text. invalid_request for what the
  // template refuses, or without one.
  TokenRow conversation(
      const OrderedJson& messages,
      const OrderedJson& tools,
      size_t first_answer,
      bool only_answers) const;

 private:
  std::vector<int32_t> raw(std::string_view text) const;
  const text::ChatTemplate& template_for(const OrderedJson& tools) const;

  const text::Tokenizer& tokenizer_;
  const text::ChatTemplate* chat_template_;
  const DataOptions& options_;
  int64_t unix_time_;
  // For samples without the mark that it was made with: nearly all.
  std::string mark_;
  text::SpecialLiterals literals_;
};

}  // namespace mlxx::data
