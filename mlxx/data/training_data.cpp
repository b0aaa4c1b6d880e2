#include "mlxx/data/training_data.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <thread>

#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/data/batch_layout.h"
#include "mlxx/data/epoch_plan.h"
#include "mlxx/data/jsonl_file.h"
#include "mlxx/data/sample_reader.h"

namespace mlxx::data {
namespace {

constexpr auto kInvalid = ErrorKind::invalid_request;
constexpr int kMostThreads = 8;
// Lines that a thread takes at a time while the file is checked.
constexpr int64_t kLinesTaken = 16;

void check_range(const char* name, int value, int least, int most) {
  if (value < least || value > most) {
    fail(kInvalid, name, "is {}, must be {} to {}", value, least, most);
  }
}

DataOptions checked(DataOptions options) {
  check_range("max_length", options.max_length, 2, 1 << 24);
  check_range("batch_size", options.batch_size, 1, 1 << 16);
  int64_t tokens = int64_t{2} * options.max_length * options.batch_size;
  if (tokens > std::numeric_limits<int32_t>::max()) {
    fail(kInvalid, "batch_size", "{} tokens in a batch are too many", tokens);
  }
  return options;
}

// What is known of a line once it was tokenized.
struct LineFacts {
  int32_t length = 0;  // what EpochPlan takes for it; 0: nothing to learn
  int32_t longest = 0;
  int32_t tokens = 0;
  int32_t targets = 0;
  SampleKind kind = SampleKind::text;
  bool cut = false;
};

class FileData : public TrainingData {
 public:
  FileData(
      const std::filesystem::path& file,
      const text::Tokenizer& tokenizer,
      const text::ChatTemplate* chat_template,
      const DataOptions& options)
      : options_(checked(options)),
        file_(file),
        reader_(tokenizer, chat_template, options_, file_.modified_at()) {
    std::vector<LineFacts> facts = check_lines();
    summarize(facts);
    plan(0);
    batches_ = plan(0)->batches();
  }

  int64_t samples() const override {
    return summary_.samples;
  }
  int64_t batches_per_epoch() const override {
    return batches_;
  }
  DataSummary summary() const override {
    return summary_;
  }
  std::string place(int64_t sample) const override {
    if (sample < 0 || sample >= samples()) {
      fail(kInvalid, "sample", "{} of {}", sample, samples());
    }
    return file_.place(lines_[static_cast<size_t>(sample)]);
  }

  Batch batch(int64_t index) const override;
  int64_t largest_batch() const override;

 private:
  std::vector<LineFacts> check_lines() const;
  LineFacts check_line(int64_t line) const;
  void summarize(const std::vector<LineFacts>& facts);
  std::shared_ptr<const EpochPlan> plan(int64_t epoch) const;

  // Of a packed row: as many as the rows of a batch have at most.
  int row_tokens() const {
    return options_.batch_size * options_.max_length *
        (options_.preference ? 2 : 1);
  }

  DataOptions options_;
  JsonlFile file_;
  SampleReader reader_;
  DataSummary summary_;
  std::vector<uint32_t> lines_;   // of samples
  std::vector<int32_t> lengths_;  // of samples
  int64_t batches_ = 0;

  mutable std::mutex mutex_;
  mutable int64_t epoch_ = -1;
  mutable std::shared_ptr<const EpochPlan> plan_;  // of epoch_
};

LineFacts FileData::check_line(int64_t line) const {
  TokenizedSample sample = reader_.read(file_.read(line), file_.place(line));
  LineFacts facts{.kind = sample.kind, .cut = sample.cut};
  if (!sample.has_targets()) {
    return facts;
  }
  facts.longest = data::row_tokens(sample);
  facts.length = options_.pack ? packed_tokens(sample, options_.share_prompts)
                               : facts.longest;
  facts.tokens = packed_tokens(sample, false);
  auto targets = [](const TokenRow& row) {
    return static_cast<int32_t>(std::ranges::count(row.targets, 1));
  };
  facts.targets = targets(sample.row) + targets(sample.rejected);
  return facts;
}

// On several threads; of several errors, the first line's.
std::vector<LineFacts> FileData::check_lines() const {
  int64_t lines = file_.size();
  std::vector<LineFacts> facts(static_cast<size_t>(lines));
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  int64_t failed_at = lines;
  std::exception_ptr failure;
  auto work = [&](bool reports) {
    while (true) {
      int64_t begin = next.fetch_add(kLinesTaken);
      int64_t line = begin;
      try {
        for (; line < std::min(begin + kLinesTaken, lines); ++line) {
          facts[static_cast<size_t>(line)] = check_line(line);
        }
        if (begin >= lines) {
          return;
        }
        if (reports && options_.progress) {
          options_.progress(line, lines);
        }
      } catch (...) {
        next = lines;
        std::lock_guard lock(mutex);
        if (line < failed_at) {
          failed_at = line;
          failure = std::current_exception();
        }
        return;
      }
    }
  };
  auto threads = std::clamp<int64_t>(
      lines / (4 * kLinesTaken),
      1,
      std::clamp<int64_t>(
          std::thread::hardware_concurrency(),
          1,
          kMostThreads));
  {
    std::vector<std::jthread> others;
    for (int64_t i = 1; i < threads; ++i) {
      others.emplace_back(work, false);
    }
    work(true);
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
  return facts;
}

void FileData::summarize(const std::vector<LineFacts>& facts) {
  summary_.lines = static_cast<int64_t>(facts.size());
  summary_.kind = plural(facts.front().kind);
  for (size_t line = 0; line < facts.size(); ++line) {
    const LineFacts& fact = facts[line];
    auto place = [&] { return file_.place(static_cast<int64_t>(line)); };
    if (fact.kind != facts.front().kind) {
      fail(
          ErrorKind::bad_file,
          place(),
          "is of {}, the first line of {}: a file must be all of one kind",
          plural(fact.kind),
          summary_.kind);
    }
    summary_.cut += fact.cut ? 1 : 0;
    if (fact.length == 0) {
      if (summary_.skipped++ == 0) {
        summary_.first_skipped = place();
      }
      continue;
    }
    summary_.tokens += fact.tokens;
    summary_.target_tokens += fact.targets;
    summary_.longest = std::max(summary_.longest, fact.longest);
    lines_.push_back(static_cast<uint32_t>(line));
    lengths_.push_back(fact.length);
  }
  summary_.samples = static_cast<int64_t>(lines_.size());
  if (lines_.empty()) {
    fail(
        kInvalid,
        summary_.first_skipped,
        "has no token to predict, and neither has any other line (an empty "
        "text, no assistant's message, or cut at {} tokens)",
        options_.max_length);
  }
  if (summary_.skipped > 0) {
    log_warning(
        "{} of {} lines have no token to predict and are left out, the first "
        "one is {}",
        summary_.skipped,
        summary_.lines,
        summary_.first_skipped);
  }
  if (summary_.cut > 0) {
    log_warning(
        "{} of {} lines are longer than {} tokens and are cut",
        summary_.cut,
        summary_.lines,
        options_.max_length);
  }
}

std::shared_ptr<const EpochPlan> FileData::plan(int64_t epoch) const {
  std::lock_guard lock(mutex_);
  if (epoch != epoch_) {
    EpochPlan::Options options{
        .batch_size = options_.batch_size,
        .shuffle = options_.shuffle,
        .seed = options_.seed,
        .row_tokens = options_.pack ? row_tokens() : 0};
    plan_ = std::make_shared<EpochPlan>(lengths_, options, epoch);
    epoch_ = epoch;
  }
  return plan_;
}

Batch FileData::batch(int64_t index) const {
  if (index < 0) {
    fail(kInvalid, "batch", "{} is negative", index);
  }
  auto of_epoch = plan(index / batches_);
  std::vector<TokenizedSample> read;
  std::vector<BatchSample> samples;
  auto indices = of_epoch->samples(index % batches_);
  read.reserve(indices.size());
  for (uint32_t sample : indices) {
    int64_t line = lines_[sample];
    read.push_back(reader_.read(file_.read(line), file_.place(line)));
    samples.push_back({.index = sample, .sample = read.back()});
  }
  return options_.pack
      ? packed_batch(samples, row_tokens(), options_.share_prompts)
      : padded_batch(samples, options_.max_length);
}

int64_t FileData::largest_batch() const {
  auto first = plan(0);
  int64_t largest = 0;
  int64_t most = -1;
  for (int64_t index = 0; index < batches_; ++index) {
    int64_t longest = 0;
    int64_t sum = 0;
    auto indices = first->samples(index);
    for (uint32_t sample : indices) {
      longest = std::max<int64_t>(longest, lengths_[sample]);
      sum += lengths_[sample];
    }
    int64_t tokens =
        options_.pack ? sum : longest * static_cast<int64_t>(indices.size());
    if (tokens > most) {
      most = tokens;
      largest = index;
    }
  }
  return largest;
}

}  // namespace

std::unique_ptr<TrainingData> open_training_data(
    const std::filesystem::path& file,
    const text::Tokenizer& tokenizer,
    const text::ChatTemplate* chat_template,
    const DataOptions& options) {
  return std::make_unique<FileData>(file, tokenizer, chat_template, options);
}

}  // namespace mlxx::data
