#pragma once

#include <vector>

#include "mlxx/kernels/token_choice/token_choice.h"

namespace mlxx::kernels {

struct Candidate {
  int32_t token;
  float logprob;
};

// Numbers of a row and the largest of each block of them.
struct RowNumbers {
  const float* x = nullptr;
  int64_t size = 0;
  std::vector<float> maxima;
  float top = 0;  // of all
};

// The memory of one thread that chooses for one row after the other.
class RowChooser {
 public:
  explicit RowChooser(const ChoiceKernels& kernels) : kernels_(kernels) {}

  struct Result {
    int32_t token;
    float check;
    float logprob;
  };
  // `top`: room for choice.top_logprobs candidates.
  Result choose(
      const float* logits,
      int64_t size,
      int32_t fed,
      const TokenChoice& choice,
      Candidate* top);

 private:
  // The logits with bias, penalties and what is not allowed.
  const float* changed(
      const float* logits,
      int64_t size,
      int32_t fed,
      const TokenChoice& choice);
  void penalize(int32_t fed, const TokenChoice& choice);
  void scan(const float* x, int64_t size, RowNumbers& numbers) const;
  // Of row_, log-probabilities in logprobs_, what does not stay becomes -inf.
  // `sum` of e^(x - top).
  void filter(const TokenChoice& choice, float sum);
  // Of what reaches bounds from below `high` down to `low`.
  struct Masses {
    float bounds[kChoiceBounds];
    float sums[kChoiceBounds];
  };
  Masses masses_between(float low, float high) const;
  // The least log-probability that stays.
  float top_p_bound(float wanted);
  float min_p_bound(float min_p, int least);
  float top_k_bound(int64_t count);
  void exclude_top_choices(const TokenChoice& choice, float bound);
  int32_t draw(const TokenChoice& choice) const;
  // The `count` largest into kept_, in order.
  void largest(const RowNumbers& row, int64_t count);
  // Those with low <= x < high into kept_.
  void gather(const RowNumbers& row, float low, float high);

  const ChoiceKernels& kernels_;
  std::vector<float> changed_;
  std::vector<float> logprobs_;
  std::vector<float> weights_;  // e^(x - top)
  std::vector<float> bounds_;
  std::vector<Candidate> kept_;
  RowNumbers raw_;  // logits
  RowNumbers row_;  // what is drawn from
};

// The two halves of threefry2x32.
std::pair<uint32_t, uint32_t>
random_pair(RandomKey key, uint32_t first, uint32_t second);

}  // namespace mlxx::kernels
