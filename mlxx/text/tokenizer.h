#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mlxx::text {

struct EncodeOptions {
  // Let the tokenizer's post-processor add its BOS/EOS. A text that already
  // starts with the BOS does not get a second one.
  bool add_special_tokens = false;
  // Recognise control tokens spelled out in the text. Off for text that a
  // user wrote: "<|im_end|>" is then ordinary characters.
  bool parse_special = true;
};

// A Hugging Face `tokenizers` pipeline. Immutable and thread-safe.
class Tokenizer {
 public:
  // `json` is the text of a tokenizer.json. bad_file if it is not one, or one
  // that would silently mis-tokenise (a BPE model without merges, say).
  static std::shared_ptr<const Tokenizer> from_json(std::string_view json);
  // From packed(), which may have been damaged since: bad_file then.
  static std::shared_ptr<const Tokenizer> from_packed(std::string_view packed);
  // Names the form of packed(): what another one wrote is of no use.
  static std::string packed_format();
  ~Tokenizer();

  // The form that is loaded without being built; valid while the tokenizer
  // is. Empty for one that has no such form: not a BPE, or an odd one.
  std::string_view packed() const;

  // `text` must be valid UTF-8 (invalid_request) and at most 16 MiB.
  std::vector<int32_t> encode(
      std::string_view text,
      const EncodeOptions& options = {}) const;
  // An id without a token decodes to nothing.
  std::string decode(
      std::span<const int32_t> tokens,
      bool skip_special_tokens = false) const;

  std::optional<int32_t> token_to_id(std::string_view token) const;
  // invalid_request if there is no such id.
  std::string id_to_token(int32_t id) const;
  // The bytes that the token stands for; may be part of a character.
  std::string token_bytes(int32_t id) const;
  bool is_special(int32_t id) const;
  // Largest id + 1, added tokens included.
  int32_t vocab_size() const;

  struct Impl;
  const Impl& impl() const {
    return *impl_;
  }

 private:
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace mlxx::text
