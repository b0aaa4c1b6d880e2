#include "mlxx/engine/batch_sampler.h"

#include <algorithm>
#include <limits>

#include "mlxx/base/error.h"
#include "mlxx/generate/logits_processors.h"
#include "mlxx/generate/token_choices.h"

namespace mlxx::engine {
namespace {

using generate::SamplingOptions;

// Rows that are computed by the same operations.
struct Group {
  const RowChoice* first;
  std::vector<int32_t> rows;
};

// The seed is in the key.
bool same_settings(const SamplingOptions& a, const SamplingOptions& b) {
  SamplingOptions other = b;
  other.seed = a.seed;
  return a == other;
}

std::vector<Group> grouped(std::span<const RowChoice> rows) {
  std::vector<Group> groups;
  for (size_t row = 0; row < rows.size(); ++row) {
    const RowChoice& choice = rows[row];
    auto found = std::ranges::find_if(groups, [&](const Group& group) {
      return group.first->recent.size() == choice.recent.size() &&
          same_settings(*group.first->sampling, *choice.sampling);
    });
    if (found == groups.end()) {
      groups.push_back({&choice, {}});
      found = groups.end() - 1;
    }
    found->rows.push_back(static_cast<int32_t>(row));
  }
  return groups;
}

mx::array ints(const std::vector<int32_t>& values, mx::Shape shape) {
  return mx::array(values.begin(), std::move(shape), mx::int32);
}

mx::array rows_of(const mx::array& a, const std::vector<int32_t>& rows) {
  return std::ssize(rows) == a.shape(0)
      ? a
      : mx::take(a, ints(rows, {static_cast<int>(rows.size())}), 0);
}

// [B, V] bool of bits.
mx::array allowed(std::span<const TokenMask> masks, int vocabulary) {
  int words = (vocabulary + 31) / 32;
  std::vector<uint32_t> bits;
  for (const TokenMask& mask : masks) {
    if (mask.empty()) {
      bits.insert(bits.end(), static_cast<size_t>(words), ~uint32_t{0});
    } else if (std::ssize(mask) >= words) {
      bits.insert(bits.end(), mask.begin(), mask.begin() + words);
    } else {
      fail(
          ErrorKind::internal,
          "token mask",
          "{} words for a vocabulary of {}",
          mask.size(),
          vocabulary);
    }
  }
  auto rows = static_cast<int>(masks.size());
  mx::array all(bits.begin(), {rows, words, 1}, mx::uint32);
  mx::array each = mx::bitwise_and(
      mx::right_shift(all, mx::arange(0, 32, mx::uint32)),
      mx::array(1, mx::uint32));
  return mx::slice(
      mx::reshape(mx::astype(each, mx::bool_), {rows, words * 32}),
      {0, 0},
      {rows, vocabulary});
}

// [rows, W]: the tokens that penalties look at.
mx::array windows(
    const Group& group,
    std::span<const RowChoice> rows,
    const mx::array& fed) {
  auto count = static_cast<int>(group.rows.size());
  auto last = mx::reshape(rows_of(fed, group.rows), {count, 1});
  auto width = static_cast<int>(group.first->recent.size());
  if (width == 0) {
    return last;
  }
  std::vector<int32_t> known;
  for (int32_t row : group.rows) {
    const auto& recent = rows[static_cast<size_t>(row)].recent;
    known.insert(known.end(), recent.begin(), recent.end());
  }
  return mx::concatenate({ints(known, {count, width}), last}, 1);
}

generate::Sampled choose_group(
    const Group& group,
    std::span<const RowChoice> rows,
    const mx::array& logits,
    const mx::array& fed,
    const std::optional<mx::array>& mask,
    const kernels::Selection& selection) {
  const SamplingOptions& options = *group.first->sampling;
  mx::array own = rows_of(logits, group.rows);
  generate::LogitsProcessors processors(options);
  if (!processors.empty()) {
    own = processors.apply(own, windows(group, rows, fed));
  }
  if (mask) {
    own = mx::where(
        rows_of(*mask, group.rows),
        own,
        mx::array(-std::numeric_limits<float>::infinity(), own.dtype()));
  }
  std::vector<generate::SampleKey> keys;
  for (int32_t row : group.rows) {
    keys.push_back(rows[static_cast<size_t>(row)].key);
  }
  return generate::Sampler(options, selection).sample(own, keys);
}

std::optional<int> most_logprobs(std::span<const RowChoice> rows) {
  std::optional<int> most;
  for (const RowChoice& row : rows) {
    if (row.top_logprobs) {
      most = std::max(most.value_or(0), *row.top_logprobs);
    }
  }
  return most;
}

void add_logprobs(const mx::array& logits, int most, ChosenTokens& chosen) {
  mx::array wide = mx::astype(logits, mx::float32);
  mx::array logprobs = wide - mx::logsumexp(wide, -1, /*keepdims=*/true);
  chosen.logprobs = mx::squeeze(
      mx::take_along_axis(logprobs, mx::expand_dims(chosen.tokens, -1), -1),
      -1);
  int top = std::min(most, logits.shape(1));
  if (top > 0) {
    // Stable, so that of equal ones the lower id comes first.
    mx::array order = mx::slice(
        mx::argsort(mx::negative(logprobs), -1),
        {0, 0},
        {logits.shape(0), top});
    chosen.top_tokens = mx::astype(order, mx::int32);
    chosen.top_logprobs = mx::take_along_axis(logprobs, order, -1);
  }
}

ChosenTokens run_kernel(
    const mx::array& logits,
    const mx::array& fed,
    std::vector<kernels::TokenChoice> choices,
    bool wants_logprobs,
    const kernels::Selection& selection) {
  auto chosen =
      kernels::choose_tokens_cpu(logits, fed, std::move(choices), selection);
  ChosenTokens result{chosen.tokens, chosen.check, {}, {}, {}};
  if (wants_logprobs) {
    result.logprobs = chosen.logprobs;
    if (chosen.top_tokens.size() > 0) {
      result.top_tokens = chosen.top_tokens;
      result.top_logprobs = chosen.top_logprobs;
    }
  }
  return result;
}

ChosenTokens choose_by_kernel(
    const mx::array& logits,
    const mx::array& fed,
    std::span<const RowChoice> rows,
    std::span<const TokenMask> masks,
    const kernels::Selection& selection) {
  std::vector<kernels::TokenChoice> choices(rows.size());
  for (size_t row = 0; row < rows.size(); ++row) {
    kernels::TokenChoice& choice = choices[row];
    generate::set_processors(*rows[row].sampling, choice);
    generate::set_sampling(*rows[row].sampling, rows[row].key, choice);
    choice.known_tokens = rows[row].recent;
    choice.top_logprobs = rows[row].top_logprobs;
    if (!masks.empty()) {
      choice.allowed = masks[row];
    }
  }
  return run_kernel(
      logits,
      fed,
      std::move(choices),
      most_logprobs(rows).has_value(),
      selection);
}

// All rows at once, whatever their settings; nothing if a row's logits must be
// changed first or its settings are not those kernels'.
std::optional<ChosenTokens> choose_on_cuda(
    const kernels::CudaPlugin& plugin,
    const mx::array& logits,
    std::span<const RowChoice> rows,
    const std::optional<mx::array>& mask) {
  std::vector<kernels::cuda::TokenSampling> choices;
  for (const RowChoice& row : rows) {
    auto choice = generate::cuda_sampling(*row.sampling, row.key);
    if (!choice || !generate::LogitsProcessors(*row.sampling).empty()) {
      return std::nullopt;
    }
    choices.push_back(*choice);
  }
  mx::array allowed = mask
      ? mx::where(
            *mask,
            logits,
            mx::array(-std::numeric_limits<float>::infinity()))
      : logits;
  auto chosen = plugin.choose(allowed, std::move(choices));
  ChosenTokens result{chosen.tokens, chosen.check, {}, {}, {}};
  if (auto most = most_logprobs(rows)) {
    if (*most == 0 && !mask) {
      result.logprobs = chosen.logprobs;
    } else {
      add_logprobs(logits, *most, result);
    }
  }
  return result;
}

}  // namespace

std::vector<mx::array> ChosenTokens::arrays() const {
  std::vector<mx::array> all{tokens, check};
  for (const auto* array : {&logprobs, &top_tokens, &top_logprobs}) {
    if (*array) {
      all.push_back(**array);
    }
  }
  return all;
}

ChosenTokens choose_tokens(
    const mx::array& logits,
    const mx::array& fed,
    std::span<const RowChoice> rows,
    std::span<const TokenMask> masks,
    const kernels::Selection& selection) {
  if (logits.ndim() != 2 || std::ssize(rows) != logits.shape(0) ||
      fed.size() != rows.size() ||
      (!masks.empty() && masks.size() != rows.size())) {
    fail(
        ErrorKind::internal,
        "sampling",
        "{} rows and {} masks for {} rows of logits",
        rows.size(),
        masks.size(),
        logits.shape(0));
  }
  if (generate::chooses_by_kernel(selection, logits)) {
    return choose_by_kernel(logits, fed, rows, masks, selection);
  }
  bool has_masks = std::ranges::any_of(masks, [](const TokenMask& mask) {
    return !mask.empty();
  });
  std::optional<mx::array> mask;
  if (has_masks) {
    mask = allowed(masks, logits.shape(1));
  }
  if (const auto* plugin = generate::chooses_on_cuda(selection, logits)) {
    if (auto chosen = choose_on_cuda(*plugin, logits, rows, mask)) {
      return *std::move(chosen);
    }
  }
  std::vector<mx::array> tokens;
  std::vector<mx::array> checks;
  std::vector<int32_t> place(rows.size());  // where a row's choice is
  int32_t done = 0;
  for (const Group& group : grouped(rows)) {
    auto sampled = choose_group(group, rows, logits, fed, mask, selection);
    tokens.push_back(sampled.tokens);
    checks.push_back(sampled.check);
    for (int32_t row : group.rows) {
      place[static_cast<size_t>(row)] = done++;
    }
  }
  auto in_order = [&](const std::vector<mx::array>& parts) {
    return parts.size() == 1
        ? parts[0]
        : mx::take(mx::concatenate(parts, 0), ints(place, {done}), 0);
  };
  ChosenTokens chosen{in_order(tokens), in_order(checks), {}, {}, {}};
  if (auto most = most_logprobs(rows)) {
    add_logprobs(logits, *most, chosen);
  }
  return chosen;
}

ChosenTokens score_tokens(
    const mx::array& logits,
    std::span<const int32_t> tokens,
    int top,
    const kernels::Selection& selection) {
  auto count = static_cast<int>(tokens.size());
  mx::array given(tokens.begin(), {count}, mx::int32);
  if (generate::chooses_by_kernel(selection, logits)) {
    std::vector<kernels::TokenChoice> choices(tokens.size());
    for (size_t row = 0; row < tokens.size(); ++row) {
      choices[row].given = tokens[row];
      choices[row].top_logprobs = top;
    }
    return run_kernel(logits, given, std::move(choices), true, selection);
  }
  mx::array check = mx::squeeze(
      mx::take_along_axis(logits, mx::expand_dims(given, -1), -1),
      -1);
  ChosenTokens scored{given, mx::astype(check, mx::float32), {}, {}, {}};
  add_logprobs(logits, top, scored);
  return scored;
}

}  // namespace mlxx::engine
