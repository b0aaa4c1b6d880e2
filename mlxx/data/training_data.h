#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "mlxx/data/batch.h"

namespace mlxx::text {
class Tokenizer;
class ChatTemplate;
}  // namespace mlxx::text

namespace mlxx::data {

struct DataOptions {
  bool preference = false;    // rows of chosen and rejected answers
  bool mask_prompt = false;   // only answers are targets; always for preference
  int max_length = 2048;      // tokens of a sample
  int batch_size = 4;         // samples; of a packed row: of its tokens' worth
  bool pack = false;          // samples of any lengths in one row of max_length
  bool share_prompts = true;  // of a packed pair: the prompt once
  uint64_t seed = 0;
  bool shuffle = true;
};

// A file of samples, one JSON object a line: {"messages": [..], "tools": [..]},
// {"prompt", "completion"}, {"text"}, or {"prompt", "chosen", "rejected"}. Only
// where each line begins is kept; lines are read and tokenized as batches ask
// for them. Safe to call from several threads.
class TrainingData {
 public:
  virtual ~TrainingData() = default;

  virtual int64_t samples() const = 0;
  // Every sample once, the last batch possibly smaller.
  virtual int64_t batches_per_epoch() const = 0;
  // The index-th batch counted from the start of training, over all epochs: a
  // function of the file, the options and this number. bad_file naming file
  // and line.
  virtual Batch batch(int64_t index) const = 0;
};

// bad_file for an empty or unreadable file, or one whose first line is no
// sample. Both outlive the result.
std::unique_ptr<TrainingData> open_training_data(
    const std::filesystem::path& file,
    const text::Tokenizer& tokenizer,
    const text::ChatTemplate* chat_template,
    const DataOptions& options);

}  // namespace mlxx::data
