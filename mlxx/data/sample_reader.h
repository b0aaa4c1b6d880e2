#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/data/training_data.h"

namespace mlxx::data {

enum class SampleKind { conversation, completion, text, pair };

// "conversations", "completions", "texts", "pairs".
std::string_view plural(SampleKind kind);

struct TokenRow {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> targets;  // of the same length
};

// One line of a data set in tokens, at most max_length of them.
struct TokenizedSample {
  SampleKind kind = SampleKind::text;
  // Of a pair: the chosen answer behind the prompt, without it.
  TokenRow row = {};
  TokenRow rejected = {};            // of a pair
  std::vector<int32_t> prompt = {};  // of a pair: what both begin with
  bool cut = false;

  bool is_pair() const {
    return kind == SampleKind::pair;
  }
  // Whether there is something to learn; of a pair, on both sides.
  bool has_targets() const;
};

// Turns lines into tokens. Thread-safe.
class SampleReader {
 public:
  // Everything outlives the reader. `unix_time`: for templates that print it.
  SampleReader(
      const text::Tokenizer& tokenizer,
      const text::ChatTemplate* chat_template,
      const DataOptions& options,
      int64_t unix_time);
  ~SampleReader();

  // bad_file with `place` for what is no sample.
  TokenizedSample read(std::string_view line, const std::string& place) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mlxx::data
