#include "mlxx/generate/warm_up.h"

#include "mlxx/cache/states.h"
#include "mlxx/core/device.h"
#include "mlxx/core/memory.h"
#include "mlxx/core/mlx_errors.h"
#include "mlxx/generate/sampler.h"

namespace mlxx::generate {
namespace {

constexpr int kPrompt = 100;  // tokens: not a round number
// What a step does for the first time, for the second, and from then on.
constexpr int kSteps = 3;

mx::array zero_tokens(mx::Shape shape) {
  return mx::zeros(std::move(shape), mx::int32);
}

}  // namespace

void warm_up(const models::Model& model, const kernels::Selection& kernels) {
  if (backend() == Backend::cpu) {
    return;
  }
  with_mlx_errors("warm-up", [&] {
    std::vector<cache::CacheList> caches;
    std::vector<cache::CacheList*> rows;
    for (int row = 0; row < 2; ++row) {
      caches.push_back(model.make_cache({}));
    }
    for (auto& cache : caches) {
      rows.push_back(&cache);
    }
    const std::vector<int> lengths(rows.size(), kPrompt);
    mx::array prompts = zero_tokens({2, kPrompt});
    if (!model.append_prompts(prompts, lengths, rows)) {
      for (auto* row : rows) {
        model.forward_last(zero_tokens({1, kPrompt}), *row);
      }
    }
    // A piece of a prompt after another.
    model.forward_last(zero_tokens({1, kPrompt}), *rows[0]);
    for (auto* row : rows) {
      evaluate(*row);
    }
    SamplingOptions sampled;
    sampled.temperature = 1;
    for (int step = 0; step < kSteps; ++step) {
      for (int count : {1, 2}) {
        std::vector<SampleKey> keys(count, SampleKey{0, step});
        mx::array logits = model.forward_rows(
            zero_tokens({count}),
            std::span(rows).first(static_cast<size_t>(count)));
        for (const auto& options : {SamplingOptions(), sampled}) {
          auto chosen = Sampler(options, kernels).sample(logits, keys);
          mx::eval(chosen.tokens, chosen.check);
        }
      }
    }
  });
  clear_cache();
}

}  // namespace mlxx::generate
