#pragma once

namespace mlxx::engine {

// How many tokens of prompts to compute between two decode steps, from how
// fast this machine turned out to be with this model: less than one decode
// step takes, so that nobody's tokens come at less than half their
// pace because of a long prompt.
class PrefillPace {
 public:
  // prefill_step: the most tokens of one chunk; least_chunk: as many take
  // hardly longer than fewer (Runner::least_chunk()).
  PrefillPace(int prefill_step, int least_chunk);

  // A step of `rows` rows took `seconds`.
  void decoded(double seconds, int rows);
  void prefilled(int tokens, double seconds);

  // Tokens of the next chunk, of `left` that a prompt still needs: all of
  // them, if few would be left over. `hold_seconds`: how long it may hold up
  // decode steps; 0 if nobody decodes. `share`: of a chunk, what other prompts
  // left of it; 0 tokens if that is not worth a pass over the weights.
  int chunk(int left, double hold_seconds, double share = 1) const;
  // Which share of a chunk so many tokens are.
  double share_of(int tokens, double hold_seconds) const;

  // Of one decode step; 0 if none was measured.
  double step_seconds() const {
    return step_seconds_;
  }

 private:
  int prefill_step_;
  int least_chunk_;
  double step_seconds_ = 0;
  int step_rows_ = 0;
  double tokens_per_second_ = 0;
};

}  // namespace mlxx::engine
