#include "mlxx/kernels/top_p/top_p_cpu.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <mlx/allocator.h>
#include <mlx/backend/cpu/encoder.h>
#include <mlx/primitives.h>

#include "mlxx/base/error.h"

namespace mlxx::kernels {

namespace {

struct Candidate {
  float logprob;
  float prob;
};

// Likeliest first. Not-a-number counts as least likely, which keeps this a
// strict weak order.
bool likelier(const Candidate& a, const Candidate& b) {
  bool a_number = a.logprob == a.logprob;
  bool b_number = b.logprob == b.logprob;
  if (a_number && b_number) {
    return a.logprob > b.logprob;
  }
  return a_number && !b_number;
}

constexpr int64_t kFirstBlock = 64;

// Sorts blocks of growing size from the likeliest on until their mass is
// enough. The sums run in the fallback's order, from the likeliest down.
float threshold_of_row(
    const float* logprobs,
    const float* probs,
    float wanted,
    int64_t size) {
  std::vector<Candidate> candidates(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) {
    candidates[static_cast<size_t>(i)] = {logprobs[i], probs[i]};
  }
  auto begin = candidates.begin();
  float above = 0;
  float threshold = candidates[0].logprob;
  int64_t block = kFirstBlock;
  for (int64_t done = 0; done < size; done += block, block *= 4) {
    block = std::min(block, size - done);
    auto first = begin + done;
    auto last = first + block;
    if (last != candidates.end()) {
      std::nth_element(first, last - 1, candidates.end(), likelier);
    }
    std::sort(first, last, likelier);
    for (auto it = first; it != last; ++it) {
      // The first one always stays.
      if (it != begin && !(above < wanted)) {
        return threshold;
      }
      threshold = it->logprob;
      above += it->prob;
    }
  }
  return threshold;
}

class TopPThreshold : public mx::Primitive {
 public:
  TopPThreshold(mx::Stream stream, float top_p)
      : Primitive(stream), top_p_(top_p) {}

  void eval_cpu(
      const std::vector<mx::array>& inputs,
      std::vector<mx::array>& outputs) override {
    const auto& logprobs = inputs[0];
    const auto& probs = inputs[1];
    const auto& total = inputs[2];
    auto& out = outputs[0];
    out.set_data(mx::allocator::malloc(out.nbytes()));
    auto& encoder = mx::cpu::get_command_encoder(stream());
    encoder.set_input_array(logprobs);
    encoder.set_input_array(probs);
    encoder.set_input_array(total);
    encoder.set_output_array(out);
    encoder.dispatch([in = logprobs.data<float>(),
                      mass = probs.data<float>(),
                      sums = total.data<float>(),
                      result = out.data<float>(),
                      rows = int64_t{logprobs.shape(0)},
                      size = int64_t{logprobs.shape(1)},
                      top_p = top_p_] {
      for (int64_t r = 0; r < rows; ++r) {
        result[r] = threshold_of_row(
            in + r * size,
            mass + r * size,
            top_p * sums[r],
            size);
      }
    });
  }
  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&)
      override {
    fail(ErrorKind::internal, "top_p", "the CPU kernel was put on a GPU");
  }
  const char* name() const override {
    return "TopPThreshold";
  }
  bool is_equivalent(const mx::Primitive& other) const override {
    return top_p_ == static_cast<const TopPThreshold&>(other).top_p_;
  }

 private:
  float top_p_;
};

}  // namespace

mx::array top_p_threshold_cpu(
    const mx::array& logprobs,
    const mx::array& probs,
    const mx::array& total,
    float top_p,
    mx::Stream stream) {
  auto dense = [&](const mx::array& a) {
    return mx::contiguous(a, /*allow_col_major=*/false, stream);
  };
  return mx::array(
      {logprobs.shape(0), 1},
      mx::float32,
      std::make_shared<TopPThreshold>(stream, top_p),
      {dense(logprobs), dense(probs), dense(total)});
}

}  // namespace mlxx::kernels
