#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "mlxx/embed/encoder.h"
#include "mlxx/text/tokenizer.h"

namespace mlxx::embed {

struct TextEncoderOptions {
  int max_tokens = 0;  // of one input; 0: what tokenizer and positions allow
  bool lower_case = false;
};

// A text, or two that are read together.
struct TextInput {
  std::string_view first;
  std::optional<std::string_view> second = std::nullopt;
};

// An encoder with the tokenizer that feeds it.
class TextEncoder {
 public:
  static TextEncoder load(
      std::shared_ptr<const hub::Checkpoint> checkpoint,
      EncoderPurpose purpose,
      const TextEncoderOptions& options,
      const models::LoadOptions& load_options);

  const Encoder& encoder() const {
    return *encoder_;
  }
  const hub::Checkpoint& checkpoint() const {
    return *checkpoint_;
  }
  const text::Tokenizer& tokenizer() const {
    return *tokenizer_;
  }
  // Of one input, special tokens included; 0: no limit is known.
  int max_tokens() const {
    return max_tokens_;
  }

  struct Encoded {
    std::vector<EncoderInput> inputs;
    std::vector<int> dropped;  // tokens cut off, per input
    int64_t tokens = 0;        // of all inputs, after that
  };
  // Texts longer than `max_tokens` (0: max_tokens()) are cut off, which is
  // logged. invalid_request for a limit above the model's, for a text that is
  // no UTF-8 and for one without tokens; they are named by their number.
  Encoded encode(std::span<const TextInput> texts, int max_tokens) const;

  // Token ids as they are. invalid_request for a list that is empty or longer
  // than max_tokens() and for an id that the model has not.
  Encoded take(std::span<const std::vector<int32_t>> token_lists) const;

  // What `reduce` makes of the hidden states, [n, width] for the n inputs of a
  // batch, in the order of the inputs: [N, width] float32. Inputs are computed
  // a few thousand tokens at a time.
  mx::array run(
      std::vector<EncoderInput> inputs,
      const std::function<mx::array(const mx::array&, const TokenRows&)>&
          reduce) const;

 private:
  std::shared_ptr<const hub::Checkpoint> checkpoint_;
  std::shared_ptr<const Encoder> encoder_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  int max_tokens_ = 0;
  bool lower_case_ = false;
};

}  // namespace mlxx::embed
