#include "mlxx/data/batch_layout.h"

#include <algorithm>

namespace mlxx::data {
namespace {

int rounded_up(int64_t tokens, int64_t multiple) {
  return static_cast<int>((tokens + multiple - 1) / multiple * multiple);
}

int32_t size_of(const TokenRow& row) {
  return static_cast<int32_t>(row.tokens.size());
}

int32_t prompt_size(const TokenizedSample& sample) {
  return static_cast<int32_t>(sample.prompt.size());
}

// Writes tokens one after the other into a batch that has room for them.
class Writer {
 public:
  explicit Writer(Batch& batch) : batch_(batch) {
    size_t size =
        static_cast<size_t>(batch.rows) * static_cast<size_t>(batch.length);
    batch.tokens.assign(size, 0);
    batch.targets.assign(size, 0);
  }

  void go_to(size_t position) {
    at_ = position;
  }
  int position() const {
    return static_cast<int>(at_);
  }

  void context(const std::vector<int32_t>& tokens) {
    std::ranges::copy(tokens, batch_.tokens.begin() + offset());
    at_ += tokens.size();
  }
  void row(const TokenRow& row) {
    std::ranges::copy(row.targets, batch_.targets.begin() + offset());
    context(row.tokens);
  }
  // Nothing predicts the first token of a row.
  void no_target(size_t position) {
    batch_.targets[position] = 0;
  }

 private:
  std::ptrdiff_t offset() const {
    return static_cast<std::ptrdiff_t>(at_);
  }

  Batch& batch_;
  size_t at_ = 0;
};

}  // namespace

int32_t row_tokens(const TokenizedSample& sample) {
  return prompt_size(sample) +
      std::max(size_of(sample.row), size_of(sample.rejected));
}

int32_t packed_tokens(const TokenizedSample& sample, bool share_prompts) {
  int prompts = sample.is_pair() && !share_prompts ? 2 : 1;
  return prompts * prompt_size(sample) + size_of(sample.row) +
      size_of(sample.rejected);
}

Batch padded_batch(std::span<const BatchSample> samples, int max_length) {
  Batch batch;
  int32_t longest = 0;
  for (const auto& [index, sample] : samples) {
    longest = std::max(longest, row_tokens(sample));
    batch.rows += sample.is_pair() ? 2 : 1;
  }
  batch.length = std::max(
      longest,
      std::min(rounded_up(longest, kRowMultiple), max_length));
  Writer writer(batch);
  int row = 0;
  auto add_row = [&](int64_t index, const auto& prompt, const TokenRow& rest) {
    size_t begin =
        static_cast<size_t>(row++) * static_cast<size_t>(batch.length);
    writer.go_to(begin);
    writer.context(prompt);
    writer.row(rest);
    writer.no_target(begin);
    batch.samples.push_back(index);
  };
  for (const auto& [index, sample] : samples) {
    if (sample.is_pair()) {
      batch.pairs.push_back({.chosen = row, .rejected = row + 1});
    }
    add_row(index, sample.prompt, sample.row);
    if (sample.is_pair()) {
      add_row(index, sample.prompt, sample.rejected);
    }
  }
  return batch;
}

Batch packed_batch(
    std::span<const BatchSample> samples,
    int row_tokens,
    bool share_prompts) {
  Batch batch;
  batch.rows = 1;
  int64_t used = 0;
  for (const auto& [index, sample] : samples) {
    used += packed_tokens(sample, share_prompts);
  }
  // A sixteenth of a full row apart.
  int step = rounded_up(std::max(row_tokens / 16, 1), kRowMultiple);
  batch.length = std::max(
      static_cast<int>(used),
      std::min(rounded_up(used, step), row_tokens));
  Writer writer(batch);
  auto add_segment = [&](int64_t index, int parent, auto&& write) {
    int begin = writer.position();
    write();
    if (parent < 0) {
      writer.no_target(static_cast<size_t>(begin));
    }
    batch.segments.push_back(
        {.begin = begin,
         .end = writer.position(),
         .parent = parent,
         .sample = index});
    return static_cast<int>(batch.segments.size()) - 1;
  };
  for (const auto& [index, sample] : samples) {
    batch.samples.push_back(index);
    if (!sample.is_pair()) {
      add_segment(index, -1, [&] { writer.row(sample.row); });
      continue;
    }
    bool shared = share_prompts && !sample.prompt.empty();
    int parent = -1;
    if (shared) {
      parent = add_segment(index, -1, [&] { writer.context(sample.prompt); });
    }
    auto answer = [&](const TokenRow& row) {
      return add_segment(index, parent, [&] {
        if (!shared) {
          writer.context(sample.prompt);
        }
        writer.row(row);
      });
    };
    int chosen = answer(sample.row);
    int rejected = answer(sample.rejected);
    batch.pairs.push_back({.chosen = chosen, .rejected = rejected});
  }
  return batch;
}

}  // namespace mlxx::data
