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
  // Into kept_, from row_ of log-probabilities; false if all stay. `sum` of
  // e^(x - top).
  bool filter(const TokenChoice& choice, float sum);
  void keep_top_p(float wanted);
  float bound_of_mass(float wanted) const;
  bool cut_at_mass(float wanted);
  void keep_likeliest(int64_t count);
  void keep_min_p(float min_p, int least, bool listed);
  void exclude_top_choices(const TokenChoice& choice);
  int32_t draw_from_all(const TokenChoice& choice) const;
  int32_t draw_from_kept(const TokenChoice& choice);
  // The `count` largest into kept_, in order.
  void largest(const RowNumbers& row, int64_t count);
  void at_least(const RowNumbers& row, float bound);
  void set_terms(float top);

  const ChoiceKernels& kernels_;
  std::vector<float> changed_;
  std::vector<float> logprobs_;
  std::vector<float> values_;  // of kept_
  std::vector<float> terms_;   // e^(value - top) of kept_
  std::vector<float> bounds_;
  struct Weighed {
    Candidate candidate;
    float weight;
  };
  std::vector<Candidate> kept_;
  std::vector<Weighed> weighed_;
  RowNumbers raw_;  // logits
  RowNumbers row_;  // what is drawn from
};

// The two halves of threefry2x32.
std::pair<uint32_t, uint32_t>
random_pair(RandomKey key, uint32_t first, uint32_t second);

}  // namespace mlxx::kernels
