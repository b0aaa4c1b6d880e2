#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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
  int batch_size = 4;         // samples; a packed row is as long as they may be
  bool pack = false;          // samples of any lengths in one row
  bool share_prompts = true;  // of a packed pair: the prompt once
  uint64_t seed = 0;
  bool shuffle = true;

  // What the model's texts begin and end with; absent: with nothing.
  std::optional<int32_t> bos_id = {};
  std::optional<bool> add_bos = {};  // as tokenizer_config.json says
  std::optional<int32_t> eos_id = {};
  // For conversations with tools, where that is another one.
  const text::ChatTemplate* tool_template = nullptr;
  // Why there is no template although the model has one.
  std::string chat_template_error = {};
  // Called now and then while the file is checked; may throw to stop.
  std::function<void(int64_t done, int64_t lines)> progress = {};
};

// What a file holds.
struct DataSummary {
  int64_t lines = 0;    // that are not blank
  int64_t samples = 0;  // lines that there is something to learn from
  int64_t skipped = 0;  // the others: no token to predict
  int64_t cut = 0;      // samples longer than max_length
  int64_t tokens = 0;  // of all samples, once cut; a pair's prompt counts twice
  int64_t target_tokens = 0;
  int longest = 0;   // tokens of a sample
  std::string kind;  // "conversations", "completions", "texts", "pairs"
  std::string first_skipped;  // "train.jsonl: line 7"; "" if there is none
};

// A file of samples, one JSON object a line, all of one kind:
//   {"messages": [..], "tools": [..]}    conversations
//   {"prompt": .., "completion": ..}     completions
//   {"text": ".."}                       texts
//   {"prompt": .., "chosen": .., "rejected": ..}   pairs, for preference
// where a prompt or an answer is a text or a list of messages, and other keys
// are ignored. Only where lines are and how long is kept; they are read and
// tokenized again as batches ask for them. Safe to call from several threads.
class TrainingData {
 public:
  virtual ~TrainingData() = default;

  virtual int64_t samples() const = 0;
  // Every sample once, the last batch possibly smaller.
  virtual int64_t batches_per_epoch() const = 0;
  // The index-th batch counted from the start of training, over all epochs: a
  // function of the file, the options and this number. bad_file naming file
  // and line if the file has changed; invalid_request for a negative index.
  virtual Batch batch(int64_t index) const = 0;

  virtual DataSummary summary() const = 0;
  // A batch of the first epoch than which none has more tokens: what has to
  // fit into memory.
  virtual int64_t largest_batch() const = 0;
  // "train.jsonl: line 7".
  virtual std::string place(int64_t sample) const = 0;
};

// Checks and tokenizes the whole file once. bad_file, naming the line, for an
// empty or unreadable file and for a line that is no sample or is of another
// kind than the first; invalid_request for options out of range, for pairs
// without `preference` or other samples with it, and if all samples were
// skipped. Tokenizer and templates outlive the result.
std::unique_ptr<TrainingData> open_training_data(
    const std::filesystem::path& file,
    const text::Tokenizer& tokenizer,
    const text::ChatTemplate* chat_template,
    const DataOptions& options);

}  // namespace mlxx::data
