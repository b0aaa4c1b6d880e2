// What every architecture of the registry must hold, on its tiny config. A new
// model needs no new test here.
#include <gtest/gtest.h>

#include "mlxx/cache/chunked.h"
#include "mlxx/cache/rows.h"
#include "mlxx/cache/stored_caches.h"
#include "mlxx/core/device.h"
#include "tests/core/temporary_folder.h"
#include "tests/kernels/relative_error.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::models {
namespace {

constexpr int kTokens = 40;

// Of norms. Our CPU kernels compute a token in the same order in every company;
// a GPU's products of other sizes are other kernels, here without TF32.
float tolerance() {
  return backend() == Backend::cpu ? 1e-5f : 1e-4f;
}

// In fallback mode and with the kernels of this machine.
struct Variant {
  const ModelInfo* info;
  bool fallback;
};

void PrintTo(const Variant& variant, std::ostream* out) {
  *out << variant.info->model_type
       << (variant.fallback ? " fallback" : " auto");
}

class Conformance : public testing::TestWithParam<Variant> {
 protected:
  Conformance()
      : config_(parse_json(GetParam().info->tiny_config, "tiny")),
        checkpoint_(random_checkpoint(config_)),
        model_(load(checkpoint_)) {}

  static std::shared_ptr<const Model> load(const FakeCheckpoint& checkpoint) {
    return load_model(
        checkpoint,
        LoadOptions{.kernels = selection(GetParam().fallback)});
  }

  mx::array tokens(int rows, int length, int seed = 1) const {
    return mx::random::randint(
        0,
        model_->summary().vocab_size,
        {rows, length},
        mx::int32,
        mx::random::key(seed));
  }

  static mx::array columns(const mx::array& ids, int from, int to) {
    return mx::slice(ids, {0, from}, {ids.shape(0), to});
  }

  // Logits [B, L, V] when the tokens come in pieces of these lengths.
  mx::array in_pieces(const mx::array& ids, const std::vector<int>& lengths)
      const {
    auto cache = model_->make_cache({});
    std::vector<mx::array> parts;
    int at = 0;
    for (int n : lengths) {
      parts.push_back(model_->forward(columns(ids, at, at + n), cache));
      at += n;
    }
    return mx::concatenate(parts, 1);
  }

  Json config_;
  FakeCheckpoint checkpoint_;
  std::shared_ptr<const Model> model_;
};

TEST_P(Conformance, LogitsHaveTheShapeOfTheSummary) {
  auto summary = model_->summary();
  auto cache = model_->make_cache({});
  // One entry per layer, or one for a decoder that runs as one kernel; layers
  // that read another one's keys have none.
  EXPECT_TRUE(!cache.empty() && std::ssize(cache) <= summary.layers);
  EXPECT_LE(
      std::ssize(model_->make_cache({.per_layer = true})),
      summary.layers);
  mx::array logits = model_->forward(tokens(2, 7), cache);
  EXPECT_EQ(logits.shape(), (mx::Shape{2, 7, summary.vocab_size}));
  EXPECT_TRUE(mx::all(mx::isfinite(logits)).item<bool>());
  EXPECT_GT(mx::var(logits).item<float>(), 1e-4f);
  for (const auto& layer : cache) {
    EXPECT_EQ(layer->offset(), 7);
  }
}

TEST_P(Conformance, CachedLogitsEqualUncachedOnes) {
  mx::array ids = tokens(1, kTokens);
  mx::array whole = in_pieces(ids, {kTokens});
  mx::array one_by_one = in_pieces(ids, std::vector<int>(kTokens, 1));
  EXPECT_LT(relative_error(one_by_one, whole), tolerance());
}

TEST_P(Conformance, SplitPrefillEqualsWholePrefill) {
  mx::array ids = tokens(1, kTokens);
  mx::array whole = in_pieces(ids, {kTokens});
  EXPECT_LT(relative_error(in_pieces(ids, {16, 16, 8}), whole), tolerance());
  EXPECT_LT(relative_error(in_pieces(ids, {1, 38, 1}), whole), tolerance());
}

TEST_P(Conformance, ABatchEqualsItsRows) {
  mx::array ids = tokens(3, kTokens);
  mx::array batch = in_pieces(ids, {30, 10});
  for (int row = 0; row < 3; ++row) {
    mx::array alone =
        in_pieces(mx::slice(ids, {row, 0}, {row + 1, kTokens}), {30, 10});
    mx::array in_batch = mx::slice(
        batch,
        {row, 0, 0},
        {row + 1, batch.shape(1), batch.shape(2)});
    EXPECT_LT(relative_error(in_batch, alone), tolerance()) << row;
  }
}

TEST_P(Conformance, ForwardLastIsTheLastRow) {
  mx::array ids = tokens(2, 9);
  auto cache = model_->make_cache({});
  mx::array last = model_->forward_last(ids, cache);
  mx::array all = in_pieces(ids, {9});
  mx::array expected =
      mx::squeeze(mx::slice(all, {0, 8, 0}, {2, 9, all.shape(2)}), 1);
  EXPECT_EQ(last.shape(), expected.shape());
  EXPECT_LT(relative_error(last, expected), tolerance());
}

TEST_P(Conformance, TrimmedTokensLeaveNoTrace) {
  mx::array ids = tokens(1, 14);
  mx::array other = tokens(1, 6, /* seed= */ 2);
  auto cache = model_->make_cache({});
  mx::eval(model_->forward(columns(ids, 0, 8), cache));
  mx::eval(model_->forward(other, cache));
  bool can_forget = std::ranges::all_of(cache, [](const auto& layer) {
    return layer->is_trimmable();
  });
  for (auto& layer : cache) {
    ASSERT_EQ(layer->trim(6), layer->is_trimmable() ? 6 : 0);
  }
  if (!can_forget) {
    GTEST_SKIP() << "a state that tokens cannot be taken out of";
  }
  mx::array resumed = model_->forward(columns(ids, 8, 14), cache);
  mx::array whole = in_pieces(ids, {8, 6});
  mx::array expected = mx::slice(whole, {0, 8, 0}, {1, 14, whole.shape(2)});
  EXPECT_LT(relative_error(resumed, expected), tolerance());
}

TEST_P(Conformance, RowsOfABatchGoOnAsTheyWouldAlone) {
  constexpr int kPrompt = 30;
  mx::array ids = tokens(2, kTokens);
  std::vector<cache::CacheList> rows;
  for (int row = 0; row < 2; ++row) {
    rows.push_back(model_->make_cache({}));
    mx::array mine = mx::slice(ids, {row, 0}, {row + 1, kPrompt});
    mx::eval(model_->forward(mine, rows.back()));
  }
  auto batch = cache::merge_rows(
      std::vector<const cache::CacheList*>{&rows[0], &rows[1]});
  mx::array together =
      model_->forward(columns(ids, kPrompt, kPrompt + 1), batch);
  mx::eval(together);
  for (int row = 0; row < 2; ++row) {
    auto alone = cache::extract_row(batch, row);
    mx::array next = mx::slice(ids, {row, kPrompt + 1}, {row + 1, kPrompt + 2});
    mx::array whole = in_pieces(
        mx::slice(ids, {row, 0}, {row + 1, kPrompt + 2}),
        {kPrompt, 1, 1});
    int vocabulary = whole.shape(2);
    EXPECT_LT(
        relative_error(
            mx::slice(together, {row, 0, 0}, {row + 1, 1, vocabulary}),
            mx::slice(whole, {0, kPrompt, 0}, {1, kPrompt + 1, vocabulary})),
        tolerance())
        << row;
    EXPECT_LT(
        relative_error(
            model_->forward(next, alone),
            mx::slice(
                whole,
                {0, kPrompt + 1, 0},
                {1, kPrompt + 2, vocabulary})),
        tolerance())
        << row;
  }
}

TEST_P(Conformance, SavedCachesGoOnAsIfNothingHadBeen) {
  mx::array ids = tokens(1, kTokens);
  auto cache = model_->make_cache({});
  mx::eval(model_->forward(columns(ids, 0, 30), cache));
  TemporaryFolder folder;
  auto path = folder.path() / "prompt.safetensors";
  cache::save_caches(path, cache, {{"prompt", "of 30"}});
  auto loaded = model_->make_cache({});
  auto notes = cache::load_caches(path, loaded);
  EXPECT_EQ(notes.at("prompt"), "of 30");
  for (const auto& layer : loaded) {
    EXPECT_EQ(layer->offset(), 30);
  }
  mx::array expected = model_->forward(columns(ids, 30, kTokens), cache);
  mx::array got = model_->forward(columns(ids, 30, kTokens), loaded);
  EXPECT_TRUE(mx::array_equal(got, expected).item<bool>());
}

TEST_P(Conformance, AKeptWindowBoundsTheCache) {
  auto cache = model_->make_cache({.max_kv_size = 16});
  mx::array ids = tokens(1, kTokens);
  for (int at = 0; at < kTokens;) {
    int n = at < 30 ? 10 : 1;
    mx::array logits = model_->forward(columns(ids, at, at + n), cache);
    EXPECT_TRUE(mx::all(mx::isfinite(logits)).item<bool>()) << at;
    at += n;
  }
  for (const auto& layer : cache) {
    EXPECT_EQ(layer->offset(), kTokens);
    // A chunk bounds its cache by itself, with room to grow in.
    int room = dynamic_cast<const cache::ChunkedCache*>(layer.get())
        ? 2 * cache::ChunkedCache::kStep
        : 0;
    if (dynamic_cast<const cache::KVCache*>(layer.get())) {
      for (const auto& array : layer->state()) {
        EXPECT_LE(array.shape(2), 16 + room);
      }
    }
  }
}

TEST_P(Conformance, EveryTensorIsNeededAndShaped) {
  for (const auto& info : checkpoint_.tensors()) {
    FakeCheckpoint broken = checkpoint_;
    broken.remove(info.name);
    try {
      load(broken);
      // Only a head that a tied embedding can stand in for may be absent.
      EXPECT_TRUE(info.name == "lm_head.weight" || info.name == "output.weight")
          << info.name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_file);
      EXPECT_NE(
          std::string(error.what()).find("'" + info.name + "'"),
          std::string::npos)
          << error.what();
    }
    mx::Shape shape(info.shape.begin(), info.shape.end());
    shape.back() += 32;
    broken = checkpoint_;
    broken.add(info.name, mx::zeros(shape));
    try {
      load(broken);
      ADD_FAILURE() << info.name << " of a wrong shape was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_file);
      EXPECT_NE(
          std::string(error.what()).find("'" + info.name + "'"),
          std::string::npos)
          << error.what();
    }
  }
}

TEST_P(Conformance, SurplusTensorsAreNamed) {
  FakeCheckpoint more = checkpoint_;
  more.add("model.layers.0.extra.weight", mx::zeros({4}));
  try {
    load(more);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_file);
    EXPECT_NE(
        std::string(error.what()).find("'model.layers.0.extra.weight'"),
        std::string::npos)
        << error.what();
  }
}

TEST_P(Conformance, VisitNamesEachTensorOnceAndKnowsItsBytes) {
  std::vector<std::string> names;
  size_t bytes = 0;
  int64_t count = 0;
  model_->visit([&](const std::string& name, const Parameter& parameter) {
    names.push_back(name);
    bytes += parameter.nbytes();
    count += parameter.count();
  });
  std::ranges::sort(names);
  std::vector<std::string> expected;
  for (const auto& info : checkpoint_.tensors()) {
    expected.push_back(info.name);
  }
  EXPECT_EQ(names, expected);
  EXPECT_EQ(model_->summary().weight_bytes, bytes);
  EXPECT_EQ(model_->summary().parameters, count);
}

TEST_P(Conformance, QuantizedWeightsGiveNearlyTheDequantizedLogits) {
  FakeCheckpoint quantized = checkpoint_;
  FakeCheckpoint dense = checkpoint_;
  for (const auto& info : checkpoint_.tensors()) {
    bool is_matrix = info.shape.size() >= 2 && info.shape.back() % 32 == 0 &&
        info.name.ends_with(".weight");
    if (!is_matrix) {
      continue;
    }
    quantized.add_quantized(
        info.name,
        checkpoint_.load(info.name, {}).weight,
        {32, 8, "affine"});
    auto parts = quantized.load(info.name, {});
    dense.add(
        info.name,
        mx::dequantize(parts.weight, *parts.scales, parts.biases, 32, 8));
  }
  mx::array ids = tokens(1, 20);
  auto model = load(quantized);
  auto cache = model->make_cache({});
  mx::array got = model->forward(ids, cache);
  auto reference = load(dense);
  cache = reference->make_cache({});
  // Activations and keys are rounded where weights are quantized.
  EXPECT_LT(relative_error(got, reference->forward(ids, cache)), 1e-3);
  EXPECT_LT(model->summary().weight_bytes, reference->summary().weight_bytes);
}

// The relative error of half of the tokens is below this; [1, L, V] each. A
// router that rounding sends another way is nobody's fault.
float median_error(const mx::array& got, const mx::array& expected) {
  std::vector<float> errors;
  for (int i = 0; i < got.shape(1); ++i) {
    auto token = [&](const mx::array& logits) {
      return mx::slice(logits, {0, i, 0}, {1, i + 1, logits.shape(2)});
    };
    errors.push_back(relative_error(token(got), token(expected)));
  }
  std::ranges::nth_element(errors, errors.begin() + std::ssize(errors) / 2);
  return errors[errors.size() / 2];
}

// As models are used: 4-bit weights and bfloat16, a prompt and then steps,
// against exact arithmetic with the same numbers.
TEST_P(Conformance, HalfPrecisionPromptsAndStepsAreNearExactOnes) {
  if (GetParam().fallback) {
    GTEST_SKIP() << "MLX's operations are the measure here";
  }
  // MLX's products for CUDA want multiples of 64 of what latents are long.
  Json config = config_;
  for (const char* key : {"kv_lora_rank", "qk_nope_head_dim", "v_head_dim"}) {
    if (config.contains(key)) {
      config[key] = 64;
    }
  }
  // Long enough that experts' rows are sorted.
  constexpr int kPrompt = 40;
  constexpr int kAll = 50;
  FakeCheckpoint quantized = random_checkpoint(
      config,
      hub::Quantization{32, 4, "affine"},
      mx::bfloat16);
  FakeCheckpoint exact(config);
  FakeCheckpoint rounded(config);
  for (const auto& info : quantized.tensors()) {
    hub::Weight weight = quantized.load(info.name, {});
    if (info.quantization) {
      weight.weight =
          mx::dequantize(weight.weight, *weight.scales, weight.biases, 32, 4);
    }
    exact.add(info.name, mx::astype(weight.weight, mx::float32));
    rounded.add(info.name, weight.weight);
  }
  mx::array ids = tokens(1, kAll);
  auto logits = [&](const FakeCheckpoint& checkpoint, bool fallback) {
    LoadOptions options;
    options.kernels = selection(fallback);
    auto model = load_model(checkpoint, options);
    auto cache = model->make_cache({});
    std::vector<mx::array> parts = {
        model->forward(columns(ids, 0, kPrompt), cache)};
    for (int i = kPrompt; i < kAll; ++i) {
      parts.push_back(model->forward(columns(ids, i, i + 1), cache));
    }
    return std::pair(
        parts[0],
        mx::concatenate({parts.begin() + 1, parts.end()}, 1));
  };
  auto [prompt, steps] = logits(quantized, false);
  auto [exact_prompt, exact_steps] = logits(exact, true);
  auto [rounded_prompt, rounded_steps] = logits(rounded, true);
  auto limit = [](float usual) { return std::max(5e-2f, 3 * usual); };
  EXPECT_LT(
      median_error(prompt, exact_prompt),
      limit(median_error(rounded_prompt, exact_prompt)));
  EXPECT_LT(
      median_error(steps, exact_steps),
      limit(median_error(rounded_steps, exact_steps)));
}

std::vector<Variant> all_variants() {
  std::vector<Variant> variants;
  for (const ModelInfo* info : all_models()) {
    variants.push_back({info, true});
    variants.push_back({info, false});
  }
  return variants;
}

INSTANTIATE_TEST_SUITE_P(
    AllModels,
    Conformance,
    testing::ValuesIn(all_variants()),
    [](const auto& param) {
      return std::string(param.param.info->model_type) +
          (param.param.fallback ? "_fallback" : "_auto");
    });

}  // namespace
}  // namespace mlxx::models
