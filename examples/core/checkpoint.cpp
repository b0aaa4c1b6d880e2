// Blocks whose values are computed again in the backward pass. The LoRA
// weights that are trained are captured, not passed in, and still get the
// gradients that they get without checkpoints; MLX's own gives them zeros.

#include <cstdio>
#include <exception>
#include <functional>
#include <vector>

#include <mlxx/core/autograd.h>
#include <mlxx/core/checkpoint.h>
#include <mlxx/core/host_values.h>
#include <mlxx/core/memory.h>

namespace mx = mlx::core;
using Arrays = std::vector<mx::array>;
using Wrap = std::function<mlxx::ArrayFunction(mlxx::ArrayFunction)>;

constexpr int kBlocks = 8;
constexpr int kRows = 8192;  // 4 MiB an activation
constexpr int kWidth = 128, kRank = 4;

struct Step {
  Arrays gradients =
      {};  // of A [kWidth, kRank], B [kRank, kWidth] and the input
  size_t peak = 0;
  int calls = 0;  // of the function in a block
};

Step train_step(const Wrap& wrap, const Arrays& arguments) {
  Step step = {};
  auto loss = [&](const Arrays& traced) -> Arrays {
    // mx::checkpoint calls it again when `traced` is gone, hence the copy.
    auto block = wrap([&step, traced](const Arrays& in) -> Arrays {
      ++step.calls;
      mx::array h = in[0];
      h = h + mx::matmul(mx::matmul(h, traced[0]), traced[1]);
      return {mx::tanh(h * mx::sigmoid(h))};
    });
    mx::array h = traced[2];
    for (int i = 0; i < kBlocks; ++i) {
      h = block({h})[0];
    }
    return {mx::mean(mx::square(h))};
  };
  mlxx::reset_peak_memory();
  size_t before = mlxx::memory_use().active;
  step.gradients =
      mlxx::ValueAndGrad(loss, {0, 1, 2}).apply(arguments).gradients;
  mx::eval(step.gradients);
  step.peak = mlxx::memory_use().peak - before;
  return step;
}

int main() try {
  Arrays arguments = {
      mx::random::normal({kWidth, kRank}, mx::random::key(2)) * 0.1f,
      mx::random::normal({kRank, kWidth}, mx::random::key(3)) * 0.1f,
      mx::random::normal({kRows, kWidth}, mx::random::key(1))};
  mx::eval(arguments);
  Step plain = train_step([](auto block) { return block; }, arguments);
  Step ours = train_step(mlxx::checkpointed, arguments);
  Step of_mlx = train_step(mx::checkpoint, arguments);
  auto yes = [](const mx::array& a) { return mlxx::item_of<bool>(a, "same"); };
  bool same = true, zero = true;
  for (int i = 0; i < 3; ++i) {
    same = same && yes(mx::array_equal(ours.gradients[i], plain.gradients[i]));
    zero = zero && (i == 2 || !yes(mx::any(of_mlx.gradients[i])));
  }
  bool smaller = 2 * ours.peak < plain.peak;
  std::printf("gradients as without: %s\n", same ? "yes" : "NO");
  std::printf("mx::checkpoint gives A and B zeros: %s\n", zero ? "yes" : "no");
  std::printf("less than half the memory: %s\n", smaller ? "yes" : "NO");
  std::printf("calls: %d, of mx::checkpoint %d\n", ours.calls, of_mlx.calls);
  return same && smaller && ours.calls == kBlocks ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
