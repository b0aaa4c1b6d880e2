#include "mlxx/data/batch_text.h"

#include <algorithm>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "mlxx/base/utf8.h"
#include "mlxx/text/tokenizer.h"

namespace mlxx::data {
namespace {

constexpr std::string_view kOpen = "⟦";
constexpr std::string_view kClose = "⟧";

std::string printable(const std::string& bytes) {
  std::string out;
  std::string text = replace_invalid_utf8(bytes);
  std::string_view rest = text;
  while (!rest.empty()) {
    size_t end = std::min(rest.find('\n'), rest.size());
    out += escape_line(rest.substr(0, end), 4 * end + 16);
    if (end < rest.size()) {
      out += '\n';
      ++end;
    }
    rest.remove_prefix(end);
  }
  return out;
}

// Runs of tokens that are all targets or all none.
std::string marked_text(
    std::span<const int32_t> tokens,
    std::span<const uint8_t> targets,
    const text::Tokenizer& tokenizer) {
  std::string out;
  size_t at = 0;
  while (at < tokens.size()) {
    std::string bytes;
    size_t end = at;
    for (; end < tokens.size() && targets[end] == targets[at]; ++end) {
      bytes += tokenizer.token_bytes(tokens[end]);
    }
    bool is_target = targets[at] != 0;
    out += is_target ? kOpen : "";
    out += printable(bytes);
    out += is_target ? kClose : "";
    at = end;
  }
  return out;
}

// Where a row's padding begins: behind its last token that is not 0, or that
// is a target. (A text may end with token 0 only as a target.)
size_t used(std::span<const int32_t> tokens, std::span<const uint8_t> targets) {
  size_t end = tokens.size();
  while (end > 0 && tokens[end - 1] == 0 && targets[end - 1] == 0) {
    --end;
  }
  return end;
}

std::string role_in_pair(const Batch& batch, int index) {
  for (const auto& [chosen, rejected] : batch.pairs) {
    if (chosen == index) {
      return ", chosen";
    }
    if (rejected == index) {
      return ", rejected";
    }
  }
  return batch.pairs.empty() ? "" : ", prompt";
}

}  // namespace

std::string batch_as_text(
    const Batch& batch,
    const text::Tokenizer& tokenizer) {
  std::span tokens(batch.tokens);
  std::span targets(batch.targets);
  int64_t real = 0;
  std::string out;
  auto add = [&](std::string_view what,
                 int index,
                 int64_t sample,
                 size_t begin,
                 size_t length) {
    auto part = tokens.subspan(begin, length);
    auto mask = targets.subspan(begin, length);
    real += static_cast<int64_t>(length);
    out += fmt::format(
        "--- {} {}, sample {}{}: {} tokens, {} to predict\n{}\n",
        what,
        index,
        sample,
        role_in_pair(batch, index),
        length,
        std::ranges::count(mask, 1),
        marked_text(part, mask, tokenizer));
  };
  if (batch.segments.empty()) {
    auto length = static_cast<size_t>(batch.length);
    for (int row = 0; row < batch.rows; ++row) {
      size_t begin = static_cast<size_t>(row) * length;
      add("row",
          row,
          batch.samples[static_cast<size_t>(row)],
          begin,
          used(tokens.subspan(begin, length), targets.subspan(begin, length)));
    }
  }
  for (size_t i = 0; i < batch.segments.size(); ++i) {
    const Segment& segment = batch.segments[i];
    add("segment",
        static_cast<int>(i),
        segment.sample,
        static_cast<size_t>(segment.begin),
        static_cast<size_t>(segment.end - segment.begin));
  }
  return fmt::format(
             "{} of {} tokens, {} of them to predict (between {} and {}), {} "
             "padding\n",
             batch.segments.empty()
                 ? fmt::format("{} rows", batch.rows)
                 : fmt::format("{} segments", batch.segments.size()),
             real,
             batch.target_count(),
             kOpen,
             kClose,
             static_cast<int64_t>(batch.tokens.size()) - real) +
      out;
}

}  // namespace mlxx::data
