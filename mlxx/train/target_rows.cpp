#include "mlxx/train/target_rows.h"

#include "mlxx/base/error.h"
#include "mlxx/core/custom_vjp.h"

namespace mlxx::train {
namespace {

constexpr auto kPlace = "batch";

void check(const data::Batch& batch) {
  size_t tokens = static_cast<size_t>(batch.rows) * batch.length;
  if (batch.rows < 1 || batch.length < 1 || batch.tokens.size() != tokens ||
      batch.targets.size() != tokens) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "{} rows of {} with {} tokens and {} targets",
        batch.rows,
        batch.length,
        batch.tokens.size(),
        batch.targets.size());
  }
  if (!batch.segments.empty() && batch.rows != 1) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "segments in a batch of {} rows",
        batch.rows);
  }
  int last = 0;
  for (size_t i = 0; i < batch.segments.size(); ++i) {
    const auto& segment = batch.segments[i];
    if (segment.begin < last || segment.end <= segment.begin ||
        segment.end > batch.length || segment.parent < -1 ||
        segment.parent >= static_cast<int>(i)) {
      fail(
          ErrorKind::invalid_request,
          kPlace,
          "segment {} of tokens {} to {} with parent {}",
          i,
          segment.begin,
          segment.end,
          segment.parent);
    }
    last = segment.end;
  }
}

// For each token the one before it in its text; -1: none.
std::vector<int> tokens_before(const data::Batch& batch) {
  std::vector<int> before(batch.tokens.size(), -1);
  if (batch.segments.empty()) {
    for (size_t i = 0; i < before.size(); ++i) {
      before[i] = i % batch.length == 0 ? -1 : static_cast<int>(i) - 1;
    }
    return before;
  }
  for (const auto& segment : batch.segments) {
    before[segment.begin] =
        segment.parent < 0 ? -1 : batch.segments[segment.parent].end - 1;
    for (int i = segment.begin + 1; i < segment.end; ++i) {
      before[i] = i - 1;
    }
  }
  return before;
}

mx::array integers(const std::vector<int>& values) {
  return mx::array(values.data(), {static_cast<int>(values.size())}, mx::int32);
}

// x [n, ...] with one more, of zeros, at the end.
mx::array with_zero(const mx::array& x) {
  mx::Shape shape = x.shape();
  shape[0] = 1;
  return mx::concatenate({x, mx::zeros(shape, x.dtype())}, 0);
}

}  // namespace

TargetRows::TargetRows(const data::Batch& batch)
    : rows_(batch.rows),
      length_(batch.length),
      tokens_(0),
      sources_(0),
      places_(0),
      target_at_(0) {
  check(batch);
  std::vector<int> before = tokens_before(batch);
  std::vector<int> tokens;
  std::vector<int> sources;
  std::vector<int> places;
  for (size_t i = 0; i < batch.targets.size(); ++i) {
    if (!batch.targets[i]) {
      continue;
    }
    if (before[i] < 0) {
      fail(
          ErrorKind::invalid_request,
          kPlace,
          "token {} is to be predicted, but there is none before it",
          i);
    }
    tokens.push_back(batch.tokens[i]);
    sources.push_back(before[i]);
    places.push_back(static_cast<int>(i));
  }
  count_ = static_cast<int>(tokens.size());
  if (count_ == 0) {
    return;
  }
  tokens_ = integers(tokens);
  sources_ = integers(sources);
  places_ = integers(places);
  std::vector<std::vector<int>> uses;
  std::vector<int> used(batch.tokens.size());
  std::vector<int> target_at(batch.tokens.size(), count_);
  for (int i = 0; i < count_; ++i) {
    size_t time = used[sources[i]]++;
    if (uses.size() == time) {
      uses.emplace_back(batch.tokens.size(), count_);
    }
    uses[time][sources[i]] = i;
    target_at[places[i]] = i;
  }
  for (const auto& use : uses) {
    uses_.push_back(integers(use));
  }
  target_at_ = integers(target_at);
}

mx::array TargetRows::states(const mx::array& h) const {
  using Arrays = std::vector<mx::array>;
  auto gather = custom_vjp(
      "target rows",
      [sources = sources_](const Arrays& x) {
        return Arrays{mx::take(x[0], sources, 0)};
      },
      [uses = uses_](const Arrays&, const Arrays& d, const Arrays&) {
        mx::array padded = with_zero(d[0]);
        mx::array sum = mx::take(padded, uses[0], 0);
        for (size_t i = 1; i < uses.size(); ++i) {
          sum = mx::add(sum, mx::take(padded, uses[i], 0));
        }
        return Arrays{sum};
      });
  return gather({mx::reshape(h, {rows_ * length_, h.shape(2)})})[0];
}

mx::array TargetRows::placed(const mx::array& scores) const {
  using Arrays = std::vector<mx::array>;
  if (count_ == 0) {
    return mx::zeros({rows_, length_}, mx::float32);
  }
  auto place = custom_vjp(
      "target places",
      [at = target_at_](const Arrays& x) {
        return Arrays{mx::take(with_zero(x[0]), at, 0)};
      },
      [places = places_](const Arrays&, const Arrays& d, const Arrays&) {
        return Arrays{mx::take(d[0], places, 0)};
      });
  return mx::reshape(place({scores})[0], {rows_, length_});
}

}  // namespace mlxx::train
