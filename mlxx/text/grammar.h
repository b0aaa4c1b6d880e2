#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "mlxx/text/tokenizer.h"

namespace mlxx::text {

enum class GrammarKind {
  json_schema,
  regex,  // of the whole answer
  lark,
};

// What the grammars of one model share: its tokens as a trie of bytes.
// Takes 0.1 s at 49k tokens, 0.5 s at 152k: make it once per model, when the
// first grammar comes. Immutable and thread-safe.
class GrammarTokens {
 public:
  // `vocabulary_size` is the width of the logits, padding included (padding
  // is never allowed). `eos_tokens` end an answer; at least one.
  static std::shared_ptr<const GrammarTokens> make(
      const Tokenizer& tokenizer,
      int32_t vocabulary_size,
      std::span<const int32_t> eos_tokens);
  ~GrammarTokens();

  // 32-bit words of a mask: ceil(vocabulary_size / 32).
  size_t mask_words() const;

  struct Impl;
  const Impl& impl() const {
    return *impl_;
  }

 private:
  explicit GrammarTokens(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Follows one answer through a grammar (llguidance). One thread at a time.
// Token ids outside the vocabulary are invalid_request everywhere.
// JSON schemas get one space after "," and ":" and no other white space,
// unless the schema says otherwise in "x-guidance".
class GrammarMatcher {
 public:
  // invalid_request if the grammar does not parse or uses what is not
  // supported (JSON schema: not, if, contains, uniqueItems, remote $ref, ...).
  GrammarMatcher(
      std::shared_ptr<const GrammarTokens> tokens,
      GrammarKind kind,
      std::string_view grammar);
  ~GrammarMatcher();
  GrammarMatcher(GrammarMatcher&&) noexcept;
  GrammarMatcher& operator=(GrammarMatcher&&) noexcept;

  // An independent copy at the same place.
  GrammarMatcher clone() const;

  // Bit i of word w allows the token 32 w + i. `mask` has mask_words() words.
  // Once the answer is complete only the eos tokens are allowed.
  void mask(std::span<uint32_t> mask);

  // Goes one token forward. False, and nothing changes, if the grammar does
  // not allow it.
  bool commit(int32_t token);
  // How many of `tokens`, from the first on, would be allowed in sequence.
  size_t validate(std::span<const int32_t> tokens);
  // Takes the last `count` committed tokens back.
  void rollback(size_t count);

  // True if the answer may end here.
  bool is_accepting();
  // True if nothing but the end can follow, or the end was committed.
  bool is_stopped() const;
  // The tokens that the grammar leaves no choice about; often none.
  std::vector<int32_t> forced();

 private:
  struct Impl;
  explicit GrammarMatcher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace mlxx::text
