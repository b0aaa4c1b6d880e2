// What the plan predicts beside what MLX's allocator then counts.
#include "mlxx/plan/memory_plan.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/core/memory.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::plan {
namespace {

constexpr size_t kMegabyte = size_t{1} << 20;

std::vector<mx::array> states_of(const cache::CacheList& caches) {
  std::vector<mx::array> states;
  for (const auto& cache : caches) {
    for (mx::array& state : cache->state()) {
      states.push_back(std::move(state));
    }
  }
  return states;
}

// As engine and generate compute a prompt: chunk by chunk, logits left out.
void prefill(
    const models::Model& model,
    cache::CacheList& caches,
    int tokens,
    int step) {
  for (int done = 0; done < tokens; done += step) {
    int length = std::min(step, tokens - done);
    model.forward_last(mx::zeros({1, length}, mx::int32), caches);
    mx::eval(states_of(caches));
    clear_cache();
  }
}

struct Case {
  const char* name;
  const char* config;
  bool fallback;
  bool quantized;
};

class Contract : public ::testing::TestWithParam<Case> {
 protected:
  models::FakeCheckpoint checkpoint() const {
    std::optional<hub::Quantization> q;
    if (GetParam().quantized) {
      q = hub::Quantization{32, 4, "affine"};
    }
    return models::random_checkpoint(
        parse_json(GetParam().config, "config"),
        q);
  }
  std::shared_ptr<const models::Model> load(bool sizes_only) {
    models::LoadOptions options;
    options.kernels = models::selection(GetParam().fallback);
    options.sizes_only = sizes_only;
    return models::load_model(checkpoint_, options);
  }

  // In fallback mode the checkpoint's arrays are the model's.
  size_t base_ = [] {
    clear_cache();
    return memory_use().active;
  }();
  models::FakeCheckpoint checkpoint_ = checkpoint();
};

TEST_P(Contract, HoldsForAWorkload) {
  // MLX's own operations are slow on a CPU.
  const Workload work = GetParam().fallback
      ? Workload{.context = 500, .rows = 2, .prefill_step = 256}
      : Workload{.context = 1500, .rows = 3, .prefill_step = 256};
  const MemoryPlan plan = ModelMemory(load(true)).plan(work);

  clear_cache();
  const size_t base = GetParam().fallback ? base_ : memory_use().active;
  auto model = load(false);
  const size_t weights = memory_use().active - base;
  EXPECT_NEAR(weights, plan.weights, 0.02 * weights + 0.3 * kMegabyte);

  reset_peak_memory();
  std::vector<cache::CacheList> rows;
  std::vector<cache::CacheList*> pointers;
  for (int row = 0; row < work.rows; ++row) {
    rows.push_back(model->make_cache({}));
    prefill(*model, rows.back(), work.context - 1, work.prefill_step);
  }
  for (auto& row : rows) {
    pointers.push_back(&row);
  }
  const size_t before = memory_use().active - base;
  mx::eval(model->forward_rows(mx::zeros({work.rows}, mx::int32), pointers));
  size_t state = 0;
  for (auto& row : rows) {
    mx::eval(states_of(row));
    for (const auto& cache : row) {
      state += cache->nbytes();
    }
  }
  EXPECT_NEAR(state, plan.state, 0.02 * state) << before;
  const size_t peak = memory_use().peak - base;
  EXPECT_NEAR(peak, plan.total(), 0.1 * peak + 4 * kMegabyte);
}

constexpr const char* kLlama = R"({
  "model_type": "llama", "vocab_size": 2000, "hidden_size": 256,
  "intermediate_size": 512, "num_hidden_layers": 6, "num_attention_heads": 4,
  "num_key_value_heads": 4, "head_dim": 64, "rms_norm_eps": 1e-5,
  "max_position_embeddings": 4096, "tie_word_embeddings": true
})";
constexpr const char* kWindows = R"({
  "model_type": "gemma3_text", "vocab_size": 2000, "hidden_size": 256,
  "intermediate_size": 512, "num_hidden_layers": 6, "num_attention_heads": 4,
  "num_key_value_heads": 4, "head_dim": 64, "rms_norm_eps": 1e-6,
  "max_position_embeddings": 4096, "sliding_window": 300,
  "sliding_window_pattern": 3, "query_pre_attn_scalar": 64
})";
constexpr const char* kRecurrent = R"({
  "model_type": "mamba2", "vocab_size": 2000, "hidden_size": 256,
  "num_hidden_layers": 4, "state_size": 64, "num_heads": 8, "head_dim": 64,
  "conv_kernel": 4, "n_groups": 1, "layer_norm_epsilon": 1e-5,
  "use_bias": false, "use_conv_bias": true, "expand": 2, "intermediate_size": 512,
  "chunk_size": 64, "time_step_limit": [0.0, 100.0], "time_step_rank": 16,
  "tie_word_embeddings": true
})";
constexpr const char* kExperts = R"({
  "model_type": "qwen3_moe", "vocab_size": 2000, "hidden_size": 256,
  "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 64, "rms_norm_eps": 1e-6,
  "max_position_embeddings": 4096, "num_experts": 8, "num_experts_per_tok": 2,
  "moe_intermediate_size": 128, "decoder_sparse_step": 1,
  "mlp_only_layers": [], "norm_topk_prob": true, "rope_theta": 10000.0,
  "tie_word_embeddings": false
})";

INSTANTIATE_TEST_SUITE_P(
    Kinds,
    Contract,
    ::testing::Values(
        Case{"blocks", kLlama, false, true},
        Case{"dense", kLlama, true, false},
        Case{"windows", kWindows, true, false},
        Case{"windows_fused", kWindows, false, false},
        Case{"recurrent", kRecurrent, false, false},
        Case{"experts", kExperts, false, true},
        Case{"experts_fallback", kExperts, true, false}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(LargestFit, IsTheLastThatFits) {
  auto checkpoint = models::random_checkpoint(parse_json(kLlama, "config"));
  models::LoadOptions options;
  options.sizes_only = true;
  const ModelMemory memory(models::load_model(checkpoint, options));
  Workload work{.context = 1000, .rows = 2};
  const size_t budget = memory.plan(work).total();
  EXPECT_EQ(memory.largest_batch(work, budget, 100), 2);
  const int context = memory.largest_context(work, budget, 4096);
  EXPECT_GE(context, 1000);
  work.context = context;
  EXPECT_LE(memory.plan(work).total(), budget);
  work.context = context + 1;
  EXPECT_GT(memory.plan(work).total(), budget);
  EXPECT_EQ(memory.largest_context(work, memory.weights(), 4096), 0);
  EXPECT_EQ(memory.largest_batch(work, budget, 0), 0);
}

TEST(Plan, RefusesWhatIsNoWorkload) {
  auto checkpoint = models::random_checkpoint(parse_json(kLlama, "config"));
  models::LoadOptions options;
  options.sizes_only = true;
  const ModelMemory memory(models::load_model(checkpoint, options));
  for (const Workload& work :
       {Workload{.context = 0},
        Workload{.context = 5, .rows = 0},
        Workload{.context = 5, .rows = 1, .prefill_step = -1}}) {
    EXPECT_THROW(memory.plan(work), Error);
  }
}

}  // namespace
}  // namespace mlxx::plan
