#include "mlxx/engine/prefill_pace.h"

#include <algorithm>

namespace mlxx::engine {

namespace {

// Fewer tokens say nothing about a machine's pace.
constexpr int kMinChunk = 16;
// Alone, a chunk may take this long: then a cancellation or a request that
// comes meanwhile is seen.
constexpr double kAloneSeconds = 0.5;
// Weight of the newest measurement.
constexpr double kNewest = 0.3;

double averaged(double before, double newest) {
  return before == 0 ? newest : before + kNewest * (newest - before);
}

}  // namespace

PrefillPace::PrefillPace(int prefill_step, int least_chunk)
    : prefill_step_(prefill_step), least_chunk_(least_chunk) {}

void PrefillPace::decoded(double seconds, int rows) {
  // With more rows or fewer a step takes another time.
  bool others = rows * 4 > step_rows_ * 5 || rows * 5 < step_rows_ * 4;
  step_seconds_ = averaged(others ? 0 : step_seconds_, seconds);
  step_rows_ = rows;
}

void PrefillPace::prefilled(int tokens, double seconds) {
  if (tokens < kMinChunk || seconds <= 0) {
    return;
  }
  tokens_per_second_ = averaged(tokens_per_second_, tokens / seconds);
}

int PrefillPace::chunk(int left, double hold_seconds, double share) const {
  double wanted = kMinChunk * 4;  // a careful first try: it may be slow
  if (tokens_per_second_ > 0) {
    wanted =
        tokens_per_second_ * (hold_seconds > 0 ? hold_seconds : kAloneSeconds);
  }
  // The order of the limits: memory is planned for chunks of prefill_step.
  double tokens =
      std::min<double>(std::max<double>(wanted, least_chunk_), prefill_step_);
  if (share < 1) {
    tokens *= share;
    return left <= tokens        ? left
        : tokens >= least_chunk_ ? static_cast<int>(tokens)
                                 : 0;
  }
  // One chunk a quarter longer is better than a second one of a few tokens.
  return left <= prefill_step_ && left <= tokens * 1.25
      ? left
      : static_cast<int>(tokens);
}

double PrefillPace::share_of(int tokens, double hold_seconds) const {
  // Of a chunk that nothing limits but the pace.
  int whole = chunk(prefill_step_ * 2, hold_seconds, 1);
  return static_cast<double>(tokens) / whole;
}

}  // namespace mlxx::engine
