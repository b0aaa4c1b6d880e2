// The default model: the contract beside what MLX counts while rows of several
// lengths are computed, and beside what a pool under that budget lets in.
#include <gtest/gtest.h>

#include "mlxx/base/environment.h"
#include "mlxx/core/memory.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/hub/resolve.h"
#include "mlxx/plan/memory_plan.h"

namespace mlxx::plan {
namespace {

constexpr size_t kMegabyte = size_t{1} << 20;

void evaluate(const cache::CacheList& caches) {
  std::vector<mx::array> states;
  for (const auto& cache : caches) {
    for (mx::array& state : cache->state()) {
      states.push_back(std::move(state));
    }
  }
  mx::eval(states);
}

TEST(DefaultModel, TakesWhatThePlanSays) {
  auto path = environment("MLXX_TEST_GGUF");
  if (!path && !environment("MLXX_HOME")) {
    GTEST_SKIP() << "neither MLXX_TEST_GGUF nor MLXX_HOME is set";
  }
  auto checkpoint = hub::open_checkpoint(
      path ? std::filesystem::path(*path)
           : hub::resolve_model(hub::kDefaultModel));
  const Workload work{.context = 700, .rows = 4, .prefill_step = 256};
  models::LoadOptions options;
  options.sizes_only = true;
  const size_t base = memory_use().active;
  const MemoryPlan plan =
      ModelMemory(models::load_model(*checkpoint, options)).plan(work);
  // To say so took nothing.
  EXPECT_LE(memory_use().active, base + kMegabyte);

  auto model = models::load_model(*checkpoint);
  clear_cache();
  const size_t weights = memory_use().active - base;
  EXPECT_NEAR(weights, plan.weights, 0.02 * weights + kMegabyte);
  reset_peak_memory();
  std::vector<cache::CacheList> rows;
  std::vector<cache::CacheList*> pointers;
  for (int row = 0; row < work.rows; ++row) {
    rows.push_back(model->make_cache({}));
    for (int done = 0; done < work.context - 1; done += work.prefill_step) {
      const int length = std::min(work.prefill_step, work.context - 1 - done);
      model->forward_last(mx::zeros({1, length}, mx::int32), rows.back());
      evaluate(rows.back());
    }
  }
  for (auto& row : rows) {
    pointers.push_back(&row);
  }
  mx::eval(model->forward_rows(mx::zeros({work.rows}, mx::int32), pointers));
  const size_t peak = memory_use().peak - base;
  EXPECT_NEAR(peak, plan.total(), 0.1 * peak + 3 * kMegabyte);
  EXPECT_GE(plan.total() + kMegabyte, peak);
}

}  // namespace
}  // namespace mlxx::plan
