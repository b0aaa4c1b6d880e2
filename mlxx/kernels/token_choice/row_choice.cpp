#include "mlxx/kernels/token_choice/row_choice.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <span>

namespace mlxx::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// The noise of no token is more than that.
constexpr float kMostNoise = 16.7f;
// Below this the draw is the likeliest token anyway.
constexpr float kLowestTemperature = 1e-6f;

// A strict order: likelier ones first, of equal ones the lower token.
bool comes_first(const Candidate& a, const Candidate& b) {
  return a.logprob != b.logprob ? a.logprob > b.logprob : a.token < b.token;
}

float uniform_of(uint32_t bits) {
  return std::min(static_cast<float>(bits) * 0x1p-32f, 1 - 0x1p-24f);
}

// Of a Gumbel distribution. A uniform 0 would remove its token, which may be
// the only one.
float noise_of(uint32_t bits) {
  return -std::log(-std::log(std::max(uniform_of(bits), 0x1p-33f)));
}

uint32_t random_bits(RandomKey key, int64_t index, int64_t count) {
  int64_t half = count / 2;
  int64_t apart = half + count % 2;
  auto word = [](int64_t number) { return static_cast<uint32_t>(number); };
  if (index < half) {
    return random_pair(key, word(index), word(index + apart)).first;
  }
  if (index < apart) {
    return random_pair(key, word(index), 0).first;
  }
  return random_pair(key, word(index - apart), word(index)).second;
}

// The best token of a Gumbel-max draw, of equal ones the first.
class Best {
 public:
  Best(RandomKey key, int64_t size, float top, float temperature)
      : key_(key), size_(size), top_(top), temperature_(temperature) {}

  bool can_win(float logprob) const {
    return !((logprob - top_) / temperature_ + kMostNoise < value_);
  }
  void offer(int32_t token, float logprob, uint32_t bits) {
    float value = (logprob - top_) / temperature_ + noise_of(bits);
    if (value > value_ || token_ < 0 || (value == value_ && token < token_)) {
      value_ = value;
      token_ = token;
    }
  }
  void offer(int32_t token, float logprob) {
    offer(token, logprob, random_bits(key_, token, size_));
  }
  float value() const {
    return value_;
  }
  int32_t token() const {
    return std::max(token_, 0);
  }

 private:
  RandomKey key_;
  int64_t size_;
  float top_;
  float temperature_;
  float value_ = -kInfinity;
  int32_t token_ = -1;
};

int32_t first_of(const RowNumbers& row) {
  for (size_t block = 0; block < row.maxima.size(); ++block) {
    if (row.maxima[block] == row.top) {
      int64_t from = static_cast<int64_t>(block) * kChoiceBlock;
      const float* end = row.x + std::min(from + kChoiceBlock, row.size);
      const float* found = std::find(row.x + from, end, row.top);
      if (found != end) {
        return static_cast<int32_t>(found - row.x);
      }
    }
  }
  return 0;
}

}  // namespace

std::pair<uint32_t, uint32_t>
random_pair(RandomKey key, uint32_t first, uint32_t second) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t keys[3] = {
      key.first,
      key.second,
      key.first ^ key.second ^ 0x1BD11BDA};
  first += keys[0];
  second += keys[1];
  for (uint32_t round = 0; round < 5; ++round) {
    for (int bits : kRotations[round % 2]) {
      first += second;
      second = std::rotl(second, bits) ^ first;
    }
    first += keys[(round + 1) % 3];
    second += keys[(round + 2) % 3] + round + 1;
  }
  return {first, second};
}

float uniform_number(RandomKey key, int64_t index, int64_t count) {
  return uniform_of(random_bits(key, index, count));
}

void RowChooser::penalize(int32_t fed, const TokenChoice& choice) {
  std::vector<int32_t> tokens = choice.known_tokens;
  tokens.push_back(fed);
  auto newest = [&](int window) {
    std::span<const int32_t> all(tokens);
    size_t count = static_cast<size_t>(window);
    return window > 0 && count < all.size() ? all.last(count) : all;
  };
  // An id that occurs twice is written twice with the same value.
  auto replace = [&](std::span<const int32_t> ids, auto&& punished) {
    std::vector<float> values;
    for (int32_t id : ids) {
      values.push_back(punished(changed_[static_cast<size_t>(id)]));
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      changed_[static_cast<size_t>(ids[i])] = values[i];
    }
  };
  if (choice.repetition != 1) {
    replace(newest(choice.repetition_window), [&](float x) {
      return x < 0 ? x * choice.repetition : x / choice.repetition;
    });
  }
  if (choice.presence != 0) {
    replace(newest(choice.penalty_window), [&](float x) {
      return x - choice.presence;
    });
  }
  if (choice.frequency != 0) {
    for (int32_t id : newest(choice.penalty_window)) {
      changed_[static_cast<size_t>(id)] -= choice.frequency;
    }
  }
}

const float* RowChooser::changed(
    const float* logits,
    int64_t size,
    int32_t fed,
    const TokenChoice& choice) {
  bool penalizes =
      choice.repetition != 1 || choice.presence != 0 || choice.frequency != 0;
  if (penalizes || !choice.bias.empty()) {
    changed_.assign(logits, logits + size);
    for (const auto& [id, bias] : choice.bias) {
      changed_[static_cast<size_t>(id)] += bias;
    }
    penalize(fed, choice);
    logits = changed_.data();
  }
  if (!choice.allowed.empty()) {
    changed_.resize(static_cast<size_t>(size));
    kernels_.keep_allowed(logits, choice.allowed.data(), size, changed_.data());
    logits = changed_.data();
  }
  return logits;
}

void RowChooser::scan(const float* x, int64_t size, RowNumbers& numbers) const {
  numbers.x = x;
  numbers.size = size;
  numbers.maxima.resize(
      static_cast<size_t>((size + kChoiceBlock - 1) / kChoiceBlock));
  numbers.top = kernels_.block_maxima(x, size, numbers.maxima.data());
}

void RowChooser::gather(const RowNumbers& row, float low, float high) {
  kept_.clear();
  for (size_t block = 0; block < row.maxima.size(); ++block) {
    if (!(row.maxima[block] >= low)) {
      continue;
    }
    int64_t from = static_cast<int64_t>(block) * kChoiceBlock;
    auto count =
        static_cast<int>(std::min<int64_t>(kChoiceBlock, row.size - from));
    uint64_t bits = kernels_.between(row.x + from, count, low, high);
    for (; bits != 0; bits &= bits - 1) {
      int64_t i = from + std::countr_zero(bits);
      kept_.push_back({static_cast<int32_t>(i), row.x[i]});
    }
  }
}

void RowChooser::largest(const RowNumbers& row, int64_t count) {
  // That many blocks have a number of at least the bound.
  float bound = -kInfinity;
  if (count <= std::ssize(row.maxima)) {
    bounds_ = row.maxima;
    auto last = bounds_.begin() + count - 1;
    std::nth_element(bounds_.begin(), last, bounds_.end(), std::greater<>());
    bound = *last;
  }
  gather(row, bound, kInfinity);
  if (std::ssize(kept_) > count) {
    auto last = kept_.begin() + count;
    std::nth_element(kept_.begin(), last, kept_.end(), comes_first);
    kept_.erase(last, kept_.end());
  }
  std::ranges::sort(kept_, comes_first);
}

RowChooser::Masses RowChooser::masses_between(float low, float high) const {
  Masses found;
  for (int i = 0; i < kChoiceBounds; ++i) {
    found.bounds[i] =
        high - (high - low) * static_cast<float>(i + 1) / kChoiceBounds;
  }
  kernels_.weights_at_least(
      row_.x,
      weights_.data(),
      row_.size,
      found.bounds,
      found.sums);
  return found;
}

// Bounds are narrowed until few tokens are between them, of which sums say
// where the mass is reached.
float RowChooser::top_p_bound(float wanted) {
  constexpr int64_t kFew = 64;
  weights_.resize(static_cast<size_t>(row_.size));
  kernels_.exponentials(row_.x, row_.size, row_.top, weights_.data());
  float above = 0;  // mass of what reaches `high`
  float high = kInfinity;
  largest(row_, std::min(kFew, row_.size));
  float mass = 0;
  for (const Candidate& candidate : kept_) {
    mass += weights_[static_cast<size_t>(candidate.token)];
  }
  if (mass < wanted) {
    // What is below has weights of almost nothing.
    constexpr float kRange = 40;
    constexpr float kNarrow = 0.02f;
    float low = row_.top - kRange;
    high = std::nextafter(row_.top, kInfinity);
    while (high - low > kNarrow) {
      Masses found = masses_between(low, high);
      int i = 0;
      while (i < kChoiceBounds && found.sums[i] < wanted) {
        above = found.sums[i];
        high = found.bounds[i];
        ++i;
      }
      if (i == kChoiceBounds) {
        low = -kInfinity;
        break;
      }
      low = found.bounds[i];
    }
    gather(row_, low, high);
    std::ranges::sort(kept_, comes_first);
  }
  float bound = high;
  for (const Candidate& candidate : kept_) {
    if (!(above < wanted)) {
      break;
    }
    above += weights_[static_cast<size_t>(candidate.token)];
    bound = candidate.logprob;
  }
  return std::min(bound, row_.top);
}

float RowChooser::min_p_bound(float min_p, int least) {
  float bound =
      row_.top + static_cast<float>(std::log(static_cast<double>(min_p)));
  if (least > 1) {
    largest(row_, least);
    bound = std::min(bound, kept_.back().logprob);
  }
  return bound;
}

// Of the tokens above the threshold only the least likely one stays.
void RowChooser::exclude_top_choices(const TokenChoice& choice, float bound) {
  weights_.resize(static_cast<size_t>(row_.size));
  kernels_.exponentials(row_.x, row_.size, row_.top, weights_.data());
  bound = std::max(bound, std::numeric_limits<float>::lowest());
  float sum = masses_between(bound, bound).sums[0];
  float threshold = *choice.xtc_threshold;
  // Somewhat lower, since exponentials are rounded.
  float near = row_.top + std::log(threshold * sum) - 0.001f;
  gather(row_, std::max(bound, near), kInfinity);
  auto share = [&](const Candidate& candidate) {
    return weights_[static_cast<size_t>(candidate.token)] / sum;
  };
  float least = kInfinity;
  for (const Candidate& candidate : kept_) {
    if (share(candidate) > threshold) {
      least = std::min(least, share(candidate));
    }
  }
  const auto& special = choice.xtc_special_tokens;
  for (const Candidate& candidate : kept_) {
    if (share(candidate) > least &&
        std::ranges::find(special, candidate.token) == special.end()) {
      logprobs_[static_cast<size_t>(candidate.token)] = -kInfinity;
    }
  }
  scan(row_.x, row_.size, row_);
}

float RowChooser::top_k_bound(int64_t count) {
  largest(row_, count);
  if (kept_.empty()) {
    return -kInfinity;
  }
  Candidate last = kept_.back();
  gather(row_, last.logprob, kInfinity);
  for (const Candidate& candidate : kept_) {
    if (comes_first(last, candidate)) {
      logprobs_[static_cast<size_t>(candidate.token)] = -kInfinity;
    }
  }
  return last.logprob;
}

void RowChooser::filter(const TokenChoice& choice, float sum) {
  float bound = -kInfinity;
  if (choice.top_p > 0 && choice.top_p < 1) {
    bound = top_p_bound(choice.top_p * sum);
  }
  if (choice.min_p > 0 && choice.min_tokens_to_keep < row_.size) {
    bound =
        std::max(bound, min_p_bound(choice.min_p, choice.min_tokens_to_keep));
  }
  if (choice.xtc_threshold) {
    exclude_top_choices(choice, bound);
  }
  if (choice.top_k > 0 && choice.top_k < row_.size) {
    bound = std::max(bound, top_k_bound(choice.top_k));
  }
  if (bound > -kInfinity) {
    kernels_.drop_below(logprobs_.data(), row_.size, bound);
    for (float& maximum : row_.maxima) {
      maximum = maximum >= bound ? maximum : -kInfinity;
    }
  }
}

int32_t RowChooser::draw(const TokenChoice& choice) const {
  const float* x = row_.x;
  float temperature = std::max(choice.temperature, kLowestTemperature);
  Best best(choice.key, row_.size, row_.top, temperature);
  int32_t likeliest = first_of(row_);
  best.offer(likeliest, x[likeliest]);

  // Numbers come in pairs, of a token and of the one that many after it.
  int64_t half = row_.size / 2;
  int64_t apart = half + row_.size % 2;
  auto can_win = [&](int64_t from, int count) {
    auto block = static_cast<size_t>(from / kChoiceBlock);
    auto last = static_cast<size_t>((from + count - 1) / kChoiceBlock);
    return best.can_win(std::max(row_.maxima[block], row_.maxima[last]));
  };
  uint32_t bits[2][kChoiceBlock];
  for (int64_t from = 0; from < half; from += kChoiceBlock) {
    int count = static_cast<int>(std::min<int64_t>(kChoiceBlock, half - from));
    const bool wins[2] = {can_win(from, count), can_win(from + apart, count)};
    if (!wins[0] && !wins[1]) {
      continue;
    }
    kernels_.random_pairs(
        choice.key,
        static_cast<uint32_t>(from),
        static_cast<uint32_t>(apart),
        bits[0],
        bits[1]);
    for (int side = 0; side < 2; ++side) {
      if (!wins[side]) {
        continue;
      }
      int64_t first = from + (side == 0 ? 0 : apart);
      uint64_t may_win = kernels_.contenders(
          {x + first, bits[side], count, row_.top, temperature, best.value()});
      for (; may_win != 0; may_win &= may_win - 1) {
        int i = std::countr_zero(may_win);
        best.offer(
            static_cast<int32_t>(first + i),
            x[first + i],
            bits[side][i]);
      }
    }
  }
  if (apart > half) {
    best.offer(static_cast<int32_t>(half), x[half]);
  }
  return best.token();
}

RowChooser::Result RowChooser::choose(
    const float* logits,
    int64_t size,
    int32_t fed,
    const TokenChoice& choice,
    Candidate* top) {
  const float* x = changed(logits, size, fed, choice);
  scan(x, size, row_);
  auto log_sum = [](float top, float sum) { return top + std::log(sum); };
  std::optional<float> sum;
  std::optional<float> raw_log_sum;
  bool draws = choice.temperature > 0 && !choice.given;
  if (draws) {
    sum = kernels_.sum_of_exponentials(x, size, row_.top);
  }
  if (choice.top_logprobs) {
    if (x == logits) {
      raw_ = row_;
    } else {
      scan(logits, size, raw_);
    }
    float raw_sum = x == logits && sum
        ? *sum
        : kernels_.sum_of_exponentials(logits, size, raw_.top);
    raw_log_sum = log_sum(raw_.top, raw_sum);
    if (*choice.top_logprobs > 0) {
      largest(raw_, std::min<int64_t>(*choice.top_logprobs, size));
      for (const Candidate& candidate : kept_) {
        *top++ = {candidate.token, candidate.logprob - *raw_log_sum};
      }
    }
  }

  Result result{choice.given ? *choice.given : first_of(row_), 0, 0};
  if (draws) {
    float amount = log_sum(row_.top, *sum);
    if (std::isfinite(amount)) {
      logprobs_.resize(static_cast<size_t>(size));
      kernels_.subtract(x, size, amount, logprobs_.data());
      for (float& largest : row_.maxima) {
        largest -= amount;
      }
      row_.x = logprobs_.data();
      row_.top -= amount;
      filter(choice, *sum);
      result.token = draw(choice);
    }
    result.check = x[result.token] - amount;
  } else {
    result.check = x[result.token];
  }
  if (raw_log_sum) {
    result.logprob = logits[result.token] - *raw_log_sum;
  }
  return result;
}

}  // namespace mlxx::kernels
