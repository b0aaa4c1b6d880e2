// The decode step of libmlxx_cuda in a model, against the same model layer by
// layer in plain operations. Needs an NVIDIA GPU; skipped elsewhere.
#include <gtest/gtest.h>

#include "mlxx/cache/decoder_cache.h"
#include "mlxx/cache/joined_rows.h"
#include "mlxx/core/device.h"
#include "mlxx/core/memory.h"
#include "mlxx/kernels/cuda_plugin/cuda_plugin.h"
#include "mlxx/nn/row_adapters.h"
#include "tests/kernels/relative_error.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::models {
namespace {

constexpr int kVocabulary = 1000;

Json config(const std::string& changes = "{}") {
  Json json = parse_json(
      R"({"model_type":"llama","vocab_size":1000,"hidden_size":256,
          "intermediate_size":512,"num_hidden_layers":3,
          "num_attention_heads":4,"num_key_value_heads":2,"head_dim":64,
          "rms_norm_eps":1e-5,"tie_word_embeddings":true})",
      "config.json");
  json.update(parse_json(changes, "changes"));
  return json;
}

const hub::Quantization kFourBits{64, 4, "affine"};

FakeCheckpoint checkpoint_of(
    const Json& config,
    const std::optional<hub::Quantization>& q = kFourBits) {
  return random_checkpoint(config, q, mx::bfloat16);
}

// The same numbers without quantization.
FakeCheckpoint dense(const FakeCheckpoint& checkpoint, mx::Dtype dtype) {
  FakeCheckpoint result(checkpoint.config());
  for (const auto& info : checkpoint.tensors()) {
    hub::Weight weight = checkpoint.load(info.name, {});
    if (info.quantization) {
      const auto& q = *info.quantization;
      weight.weight = mx::dequantize(
          weight.weight,
          *weight.scales,
          weight.biases,
          q.group_size,
          q.bits,
          q.mode);
    }
    result.add(info.name, mx::astype(weight.weight, dtype));
  }
  return result;
}

std::shared_ptr<const Model> load(
    const FakeCheckpoint& checkpoint,
    bool fallback = false) {
  LoadOptions options;
  options.kernels = selection(fallback);
  return load_model(checkpoint, options);
}

mx::array random_ids(int rows, int length, int seed = 1) {
  return mx::random::randint(
      0,
      kVocabulary,
      {rows, length},
      mx::int32,
      mx::random::key(seed));
}

// Mean over rows of KL(expected || got) of the distributions.
float divergence(const mx::array& got, const mx::array& expected) {
  auto log_softmax = [](const mx::array& logits) {
    mx::array x = mx::astype(logits, mx::float32);
    return mx::subtract(x, mx::logsumexp(x, -1, true));
  };
  mx::array p = log_softmax(expected);
  mx::array q = log_softmax(got);
  mx::array sums = mx::sum(mx::multiply(mx::exp(p), mx::subtract(p, q)), -1);
  return mx::mean(sums).item<float>();
}

bool equal_bits(const mx::array& a, const mx::array& b) {
  return mx::array_equal(a, b).item<bool>();
}

class CudaDecoder : public testing::Test {
 protected:
  void SetUp() override {
    if (backend() != Backend::cuda) {
      GTEST_SKIP() << "MLX computes on no NVIDIA GPU here";
    }
    std::string why;
    ASSERT_NE(kernels::cuda_plugin(&why), nullptr) << why;
  }

  // A prompt of so many tokens, if any, then single ones, then a piece of a
  // prompt, against exact arithmetic. MLX's operations in bfloat16 are the
  // measure where a model amplifies rounding.
  static void expect_agreement(const FakeCheckpoint& checkpoint, int prompt) {
    struct Way {
      std::shared_ptr<const Model> model;
      cache::CacheList cache;
    };
    auto way = [](std::shared_ptr<const Model> model) {
      auto cache = model->make_cache({});
      return Way{std::move(model), std::move(cache)};
    };
    Way fused = way(load(checkpoint));
    Way exact = way(load(dense(checkpoint, mx::float32), true));
    Way plain = way(load(dense(checkpoint, mx::bfloat16), true));
    ASSERT_EQ(fused.cache.size(), 1u) << "it runs layer by layer";
    ASSERT_GT(exact.cache.size(), 1u);
    auto compare = [&](const mx::array& ids, const std::string& what) {
      mx::array got = fused.model->forward(ids, fused.cache);
      mx::array expected = exact.model->forward(ids, exact.cache);
      mx::array rounded = plain.model->forward(ids, plain.cache);
      EXPECT_LT(
          divergence(got, expected),
          std::max(2e-3f, 1.5f * divergence(rounded, expected)))
          << what;
      EXPECT_LT(
          relative_error(got, expected),
          std::max(3e-2f, 1.5f * relative_error(rounded, expected)))
          << what;
    };
    if (prompt > 0) {
      compare(random_ids(2, prompt), "prompt");
    }
    for (int i = 0; i < 5; ++i) {
      compare(random_ids(2, 1, 20 + i), fmt::format("step {}", i));
    }
    if (prompt > 0) {
      compare(random_ids(2, 9, 40), "next piece");
      EXPECT_EQ(fused.cache[0]->offset(), prompt + 14);
    }
  }
};

TEST_F(CudaDecoder, AgreesWithItsLayersInEveryForm) {
  for (const auto& q :
       {hub::Quantization{64, 4, "affine"},
        hub::Quantization{32, 4, "affine"},
        hub::Quantization{128, 4, "affine"},
        hub::Quantization{64, 8, "affine"},
        hub::Quantization{32, 4, "mxfp4"},
        hub::Quantization{16, 4, "nvfp4"}}) {
    SCOPED_TRACE(fmt::format("{} {} {}", q.mode, q.bits, q.group_size));
    expect_agreement(checkpoint_of(config(), q), 0);
  }
  SCOPED_TRACE("bfloat16");
  expect_agreement(checkpoint_of(config(), std::nullopt), 70);
}

TEST_F(CudaDecoder, AgreesWithItsLayersInEveryFamily) {
  for (const char* changes :
       {R"({"attention_bias":true,"mlp_bias":true,
            "tie_word_embeddings":false,"num_key_value_heads":4})",
        R"({"layer_types":["full_attention","sliding_attention",
                           "full_attention"],
            "sliding_window":40,"rope_traditional":true})",
        R"({"model_type":"qwen2","num_key_value_heads":1})",
        R"({"model_type":"qwen3","tie_word_embeddings":false})",
        R"({"model_type":"gemma2","query_pre_attn_scalar":64,
            "sliding_window":48,"attn_logit_softcapping":50.0,
            "final_logit_softcapping":30.0,
            "hidden_activation":"gelu_pytorch_tanh"})"}) {
    SCOPED_TRACE(changes);
    expect_agreement(checkpoint_of(config(changes)), 70);
  }
}

TEST_F(CudaDecoder, SplitsLongContexts) {
  expect_agreement(checkpoint_of(config()), 1500);
}

// Sequences of different lengths in one step.
TEST_F(CudaDecoder, GivesARowTheSameBitsAloneAndAmongOthers) {
  auto model = load(checkpoint_of(config()));
  std::vector<cache::CacheList> alone;
  std::vector<cache::CacheList> together;
  std::vector<cache::CacheList*> rows;
  constexpr int kRows = 5;
  for (int i = 0; i < kRows; ++i) {
    for (auto* caches : {&alone, &together}) {
      caches->push_back(model->make_cache({}));
      mx::eval(
          model->forward_last(random_ids(1, 3 + 30 * i, i), caches->back()));
    }
  }
  for (auto& row : together) {
    rows.push_back(&row);
  }
  mx::array tokens = mx::flatten(random_ids(1, kRows, 99));
  for (int step = 0; step < 3; ++step) {
    mx::array all = model->forward_rows(tokens, rows);
    for (int i = 0; i < kRows; ++i) {
      mx::array one = model->forward_last(
          mx::reshape(mx::slice(tokens, {i}, {i + 1}), {1, 1}),
          alone[i]);
      EXPECT_TRUE(equal_bits(mx::slice(all, {i, 0}, {i + 1, kVocabulary}), one))
          << "row " << i << " of step " << step;
    }
  }
}

// Prompts of several lengths in one pass, then pieces after them.
TEST_F(CudaDecoder, AppendsPromptsTogetherAsOneByOne) {
  auto model = load(checkpoint_of(
      config(R"({"layer_types":["full_attention","sliding_attention",
                                "full_attention"],"sliding_window":40})")));
  constexpr int kRows = 5;
  std::vector<cache::CacheList> alone;
  std::vector<cache::CacheList> together;
  std::vector<cache::CacheList*> rows;
  for (int i = 0; i < kRows; ++i) {
    alone.push_back(model->make_cache({}));
    together.push_back(model->make_cache({}));
  }
  for (auto& row : together) {
    rows.push_back(&row);
  }
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<int> lengths{70, 3, 128, 64, 1};
    if (pass > 0) {
      lengths.assign(kRows, 9);
    }
    mx::array ids = random_ids(kRows, pass > 0 ? 9 : 128, pass);
    bool done = model->append_prompts(ids, lengths, rows);
    if (pass > 0) {
      EXPECT_FALSE(done) << "the rows hold different numbers of tokens";
      break;
    }
    ASSERT_TRUE(done);
    for (int i = 0; i < kRows; ++i) {
      EXPECT_EQ(together[i][0]->offset(), lengths[i]);
      mx::eval(model->forward_last(
          mx::slice(ids, {i, 0}, {i + 1, lengths[i]}),
          alone[i]));
      mx::array next = random_ids(1, 1, 30 + i);
      EXPECT_LT(
          divergence(
              model->forward_last(next, together[i]),
              model->forward_last(next, alone[i])),
          2e-3f)
          << "row " << i;
    }
  }
}

// Multiplies what linear layers give by a number of each row's own.
class RowFactors : public nn::RowAdapters {
 public:
  explicit RowFactors(std::vector<float> factors)
      : factors_(std::move(factors)) {}
  std::optional<mx::array> product(
      const Parameter&,
      const std::optional<Parameter>&,
      const mx::array& x,
      const std::function<mx::array(bool)>& plain) const override {
    mx::array y = plain(true);
    mx::Shape shape(x.ndim(), 1);
    shape[0] = static_cast<int>(factors_.size());
    EXPECT_EQ(x.shape(0), shape[0]);
    return y * mx::astype(mx::array(factors_.data(), shape), y.dtype());
  }
  bool rows_apart() const override {
    return true;
  }

 private:
  std::vector<float> factors_;
};

TEST_F(CudaDecoder, RowsOfPromptsMayHaveAdaptersOfTheirOwn) {
  auto model = load(checkpoint_of(config()));
  const std::vector<float> factors{1.0f, 0.5f, 1.25f};
  for (int different : {0, 1}) {
    auto all = model->make_cache({});
    std::vector<cache::CacheList> alone;
    std::vector<cache::CacheList> opened;
    std::vector<cache::CacheList*> rows;
    for (int i = 0; i < 3; ++i) {
      // In the second round the rows hold different numbers of tokens.
      for (auto* caches : {&alone, &opened}) {
        caches->push_back(model->make_cache({}));
        mx::eval(model->forward_last(
            random_ids(1, 4 + different * i, 60),
            caches->back()));
      }
    }
    for (auto& row : opened) {
      rows.push_back(&row);
    }
    cache::JoinedRows joined(rows);
    mx::array ids = random_ids(3, 5, 7);
    RowFactors own(factors);
    mx::array got = [&] {
      nn::AdapterScope scope(&own);
      return model->forward(ids, joined.caches());
    }();
    mx::eval(got);
    for (int i = 0; i < 3; ++i) {
      RowFactors one({factors[i]});
      nn::AdapterScope scope(&one);
      mx::array expected =
          model->forward(mx::slice(ids, {i, 0}, {i + 1, 5}), alone[i]);
      EXPECT_LT(
          divergence(
              mx::slice(got, {i, 0, 0}, {i + 1, 5, kVocabulary}),
              expected),
          2e-3f)
          << "row " << i << ", " << different;
    }
  }
}

TEST_F(CudaDecoder, TakesMoreRowsThanOneLaunch) {
  auto checkpoint = checkpoint_of(config());
  auto model = load(checkpoint);
  auto plain = load(dense(checkpoint, mx::bfloat16), true);
  auto cache = model->make_cache({});
  auto plain_cache = plain->make_cache({});
  constexpr int kRows = 70;
  for (int i = 0; i < 3; ++i) {
    mx::array ids = random_ids(kRows, 1, i);
    EXPECT_LT(
        divergence(
            model->forward_last(ids, cache),
            plain->forward_last(ids, plain_cache)),
        2e-3f);
  }
}

TEST_F(CudaDecoder, ForksWriteToTheirOwnBlocks) {
  auto model = load(checkpoint_of(config()));
  auto first = model->make_cache({});
  mx::array prompt = random_ids(1, 100);
  mx::eval(model->forward_last(prompt, first));
  cache::CacheList second;
  second.push_back(first[0]->shared_copy(90));
  mx::array a = random_ids(1, 1, 5);
  mx::array b = random_ids(1, 1, 6);
  mx::array from_first = model->forward_last(a, first);
  mx::eval(from_first);
  mx::array from_second = model->forward_last(b, second);
  mx::eval(from_second);

  auto fresh = model->make_cache({});
  mx::eval(model->forward_last(prompt, fresh));
  EXPECT_TRUE(equal_bits(model->forward_last(a, fresh), from_first));
  auto shorter = model->make_cache({});
  mx::eval(model->forward_last(mx::slice(prompt, {0, 0}, {1, 90}), shorter));
  EXPECT_LT(
      relative_error(model->forward_last(b, shorter), from_second),
      2e-2f);
  // And the first one again, whose tail the second must not have touched.
  EXPECT_TRUE(
      equal_bits(model->forward_last(b, fresh), model->forward_last(b, first)));
}

TEST_F(CudaDecoder, KeepsAStateInAFile) {
  auto model = load(checkpoint_of(config()));
  auto cache = model->make_cache({});
  mx::eval(model->forward_last(random_ids(1, 77), cache));
  auto state = cache[0]->store();
  auto other = model->make_cache({});
  other[0]->restore(state);
  EXPECT_EQ(other[0]->offset(), 77);
  mx::array next = random_ids(1, 1, 3);
  EXPECT_TRUE(equal_bits(
      model->forward_last(next, cache),
      model->forward_last(next, other)));
}

// Greedy tokens, each step begun before the one before it is waited for.
TEST_F(CudaDecoder, StaysRightWhenStepsAreNotWaitedFor) {
  auto model = load(checkpoint_of(config()));
  auto run = [&](bool waits) {
    auto cache = model->make_cache({});
    mx::array token =
        mx::argmax(model->forward_last(random_ids(1, 20), cache), -1);
    std::vector<mx::array> tokens;
    std::vector<mx::array> logits;
    for (int i = 0; i < 150; ++i) {
      mx::array row = model->forward_last(mx::reshape(token, {1, 1}), cache);
      token = mx::argmax(row, -1);
      logits.push_back(mx::max(row));
      tokens.push_back(token);
      if (waits) {
        mx::eval(token);
      } else {
        mx::async_eval(token);
      }
    }
    return std::pair(mx::stack(tokens), mx::stack(logits));
  };
  auto [tokens, logits] = run(true);
  auto [piped_tokens, piped_logits] = run(false);
  EXPECT_TRUE(equal_bits(tokens, piped_tokens));
  EXPECT_TRUE(equal_bits(logits, piped_logits));
}

TEST_F(CudaDecoder, GivesMlxsFormBackExactly) {
  for (const auto& q :
       {std::optional(kFourBits),
        std::optional(hub::Quantization{32, 8, "affine"}),
        std::optional(hub::Quantization{16, 4, "nvfp4"}),
        std::optional<hub::Quantization>()}) {
    auto checkpoint = checkpoint_of(config(), q);
    auto model = load(checkpoint);
    int packed = 0;
    model->visit([&](const std::string& name, const Parameter& parameter) {
      if (!parameter.packed()) {
        return;
      }
      ++packed;
      WeightArrays got = parameter.restore();
      hub::Weight expected = checkpoint.load(name, {});
      EXPECT_TRUE(equal_bits(got.weight, expected.weight)) << name;
      EXPECT_EQ(got.scales.has_value(), expected.scales.has_value());
      if (got.scales) {
        EXPECT_TRUE(equal_bits(*got.scales, *expected.scales)) << name;
      }
      if (got.biases) {
        EXPECT_TRUE(equal_bits(*got.biases, *expected.biases)) << name;
      }
    });
    EXPECT_EQ(packed, 3 * 7 + 1);
  }
}

TEST_F(CudaDecoder, GivesItsMemoryBack) {
  auto checkpoint = checkpoint_of(config());
  auto use = [&] {
    auto model = load(checkpoint);
    auto cache = model->make_cache({});
    mx::eval(model->forward_last(random_ids(1, 300), cache));
    mx::eval(model->forward_last(random_ids(1, 1), cache));
  };
  use();
  mx::synchronize();
  size_t before = mx::get_active_memory();
  for (int i = 0; i < 3; ++i) {
    use();
  }
  mx::synchronize();
  EXPECT_LT(mx::get_active_memory(), before + (1u << 20));
}

}  // namespace
}  // namespace mlxx::models
