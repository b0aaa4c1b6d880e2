#include <gtest/gtest.h>

#include "mlxx/core/memory.h"
#include "tests/kernels/relative_error.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::models {
namespace {

Json small_config() {
  return parse_json(
      R"({"model_type":"llama","vocab_size":64,"hidden_size":64,
          "intermediate_size":64,"num_hidden_layers":2,
          "num_attention_heads":2,"rms_norm_eps":1e-5,
          "tie_word_embeddings":false})",
      "config.json");
}

std::string load_error(const hub::Checkpoint& checkpoint) {
  try {
    load_model(checkpoint);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

mx::array logits_of(const Model& model) {
  int ids[] = {1, 2, 3, 4, 5};
  auto cache = model.make_cache({});
  return model.forward(mx::array(ids, {1, 5}, mx::int32), cache);
}

TEST(LoadModel, UnknownTypeIsNamedWithWhatIsKnown) {
  Json config = small_config();
  config["model_type"] = "mamba9";
  FakeCheckpoint checkpoint(config);
  std::string error = load_error(checkpoint);
  EXPECT_TRUE(error.starts_with(
      "[config.json] model_type 'mamba9' is not known; known are llama, "
      "mistral, "))
      << error;
  for (const ModelInfo* info : all_models()) {
    EXPECT_NE(error.find(info->model_type), std::string::npos);
  }
}

TEST(LoadModel, AliasesAreTheSameModel) {
  Json config = small_config();
  auto checkpoint = random_checkpoint(config);
  mx::array expected = logits_of(*load_model(checkpoint));
  checkpoint.mutable_config()["model_type"] = "mistral";
  auto model = load_model(checkpoint);
  EXPECT_EQ(model->summary().model_type, "mistral");
  EXPECT_TRUE(same_bits(logits_of(*model), expected));
}

TEST(LoadModel, ChunkSizesChangeNothing) {
  auto checkpoint = random_checkpoint(small_config());
  std::optional<mx::array> expected;
  for (size_t chunk : {size_t{0}, size_t{20000}, SIZE_MAX}) {
    uint64_t last = 0;
    uint64_t total = 0;
    int calls = 0;
    LoadOptions options;
    options.chunk_bytes = chunk;
    options.progress = [&](uint64_t done, uint64_t all) {
      EXPECT_GE(done, last);
      last = done;
      total = all;
      ++calls;
    };
    mx::array logits = logits_of(*load_model(checkpoint, options));
    EXPECT_EQ(last, total);
    EXPECT_EQ(total, checkpoint.file_bytes());
    EXPECT_GE(calls, chunk == SIZE_MAX ? 1 : 3);
    if (expected) {
      EXPECT_TRUE(same_bits(logits, *expected));
    }
    expected = logits;
  }
}

TEST(LoadModel, CancellingLeavesNothingBehind) {
  auto checkpoint = random_checkpoint(small_config());
  clear_cache();
  size_t before = memory_use().active;
  LoadOptions options;
  options.chunk_bytes = 0;
  options.progress = [](uint64_t done, uint64_t total) {
    if (done > total / 2) {
      fail(ErrorKind::cancelled, "load", "stopped");
    }
  };
  EXPECT_THROW(load_model(checkpoint, options), Error);
  mx::synchronize();
  EXPECT_LE(memory_use().active, before + 4096);
}

TEST(LoadModel, UnloadingGivesTheMemoryBack) {
  auto checkpoint =
      random_checkpoint(small_config(), hub::Quantization{32, 4, "affine"});
  logits_of(*load_model(checkpoint));
  clear_cache();
  size_t before = memory_use().active;
  for (int round = 0; round < 3; ++round) {
    mx::eval(logits_of(*load_model(checkpoint)));
  }
  mx::synchronize();
  clear_cache();
  EXPECT_LE(memory_use().active, before + 4096);
  EXPECT_EQ(memory_use().cache, 0u);
}

TEST(LoadModel, ManySurplusTensorsAreCounted) {
  auto checkpoint = random_checkpoint(small_config());
  for (int i = 0; i < 9; ++i) {
    checkpoint.add(fmt::format("extra.{}", i), mx::zeros({1}));
  }
  EXPECT_EQ(
      load_error(checkpoint),
      "[fake] a llama model has no use for 'extra.0', 'extra.1', 'extra.2' "
      "and 6 more");
}

TEST(LoadModel, RotaryFrequenciesOfOldCheckpointsAreSkipped) {
  auto checkpoint = random_checkpoint(small_config());
  checkpoint.add(
      "model.layers.0.self_attn.rotary_emb.inv_freq",
      mx::zeros({16}));
  EXPECT_EQ(load_error(checkpoint), "");
}

TEST(LoadModel, IntegersAreNoWeights) {
  auto checkpoint = random_checkpoint(small_config());
  checkpoint.add("model.norm.weight", mx::zeros({64}, mx::int32));
  EXPECT_NE(
      load_error(checkpoint).find("'model.norm.weight'"),
      std::string::npos);
}

TEST(LoadModel, OnlyMatricesMayBeQuantized) {
  Json config = small_config();
  config["attention_bias"] = true;
  auto checkpoint = random_checkpoint(config);
  auto infos = checkpoint.tensors();
  // A bias [64] that claims to be quantized.
  class Lying : public FakeCheckpoint {
   public:
    explicit Lying(const FakeCheckpoint& other)
        : FakeCheckpoint(other), infos_(other.tensors()) {
      for (auto& info : infos_) {
        if (info.name.ends_with(".bias")) {
          info.quantization = hub::Quantization{32, 4, "affine"};
        }
      }
    }
    const std::vector<hub::TensorInfo>& tensors() const override {
      return infos_;
    }

   private:
    std::vector<hub::TensorInfo> infos_;
  };
  EXPECT_NE(
      load_error(Lying(checkpoint)).find("which only a matrix can be"),
      std::string::npos);
}

// Layers that a converter left dense stand beside quantized ones.
TEST(LoadModel, EachMatrixMayHaveItsOwnQuantization) {
  auto dense = random_checkpoint(small_config());
  auto mixed = dense;
  auto plain = dense;
  int next = 0;
  hub::Quantization kinds[] = {
      {32, 8, "affine"},
      {64, 4, "affine"},
      {64, 6, "affine"}};
  for (const auto& info : dense.tensors()) {
    if (info.shape.size() == 2 && next++ % 4 != 3) {
      const auto& q = kinds[next % 3];
      mixed.add_quantized(info.name, dense.load(info.name, {}).weight, q);
      auto parts = mixed.load(info.name, {});
      plain.add(
          info.name,
          mx::dequantize(
              parts.weight,
              *parts.scales,
              parts.biases,
              q.group_size,
              q.bits));
    }
  }
  for (bool fallback : {true, false}) {
    LoadOptions options;
    options.kernels = selection(fallback);
    EXPECT_LT(
        relative_error(
            logits_of(*load_model(mixed, options)),
            logits_of(*load_model(plain, options))),
        2e-4);
  }
}

}  // namespace
}  // namespace mlxx::models
