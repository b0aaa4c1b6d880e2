#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "mlxx/text/tokenizer.h"

namespace mlxx::text {

// Text of a token sequence as it grows: the pieces concatenated equal the
// full decode, an incomplete character is held back, nothing else is.
// One thread at a time.
class StreamDecoder {
 public:
  explicit StreamDecoder(
      std::shared_ptr<const Tokenizer> tokenizer,
      bool skip_special_tokens = true);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  // Text that became certain with this token; often empty, always UTF-8.
  std::string step(int32_t token);
  // What is still held back, with U+FFFD for an incomplete character.
  std::string flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mlxx::text
