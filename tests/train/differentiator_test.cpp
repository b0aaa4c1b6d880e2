// Gradients of a loss over scores, however the backward pass is cut.
#include <cmath>

#include <gtest/gtest.h>

#include "mlxx/core/memory.h"
#include "mlxx/kernels/matmul/matmul.h"
#include "mlxx/kernels/quantized_matmul/quantized_matmul.h"
#include "mlxx/train/differentiate.h"
#include "mlxx/train/text_pass.h"
#include "tests/core/error_of.h"
#include "tests/kernels/relative_error.h"
#include "tests/models/fake_checkpoint.h"
#include "tests/train/low_rank_trainable.h"

namespace mlxx::train {
namespace {

constexpr int kLayers = 5;
constexpr int kVocabulary = 40;

Json tiny_config(const std::string& type = "llama", bool tied = true) {
  return {
      {"model_type", type},
      {"vocab_size", kVocabulary},
      {"hidden_size", 32},
      {"intermediate_size", 64},
      {"num_hidden_layers", kLayers},
      {"num_attention_heads", 2},
      {"num_key_value_heads", 1},
      {"head_dim", 16},
      {"rms_norm_eps", 1e-5},
      {"rope_theta", 1e4},
      {"max_position_embeddings", 512},
      {"tie_word_embeddings", tied}};
}

// Packed weights, as a model that was loaded has, or dense ones.
std::shared_ptr<models::Model>
make_model(const Json& config, bool fallback = false, bool trained = false) {
  auto checkpoint = models::random_checkpoint(config);
  auto chosen = models::selection(fallback);
  std::shared_ptr<models::Model> model =
      models::find_model(config.at("model_type").get<std::string>())
          .make(checkpoint);
  model->visit([&](const std::string& name, Parameter& parameter) {
    mx::array value = checkpoint.load(name, {}).weight;
    parameter.set({value, std::nullopt, std::nullopt});
    if (parameter.kind() == Parameter::Kind::matrix) {
      parameter.set_product(kernels::dense_product(chosen));
      auto packed = trained ? nullptr : kernels::pack_dense(value, chosen);
      if (packed) {
        parameter.set_packed(packed);
      }
    }
  });
  model->use(chosen);
  return model;
}

data::Batch row_batch(int rows, int length, uint32_t seed = 1) {
  data::Batch batch;
  batch.rows = rows;
  batch.length = length;
  for (int i = 0; i < rows * length; ++i) {
    seed = seed * 1664525u + 1013904223u;
    batch.tokens.push_back(static_cast<int32_t>((seed >> 8) % kVocabulary));
    batch.targets.push_back(i % length != 0 && (seed >> 20) % 3 != 0);
  }
  for (int row = 0; row < rows; ++row) {
    batch.samples.push_back(row);
  }
  return batch;
}

LossSums mean_loss(const mx::array& logprobs) {
  return {
      mx::negative(mx::sum(logprobs)),
      mx::array(1.0f),
      {{"sum", mx::sum(mx::square(logprobs))}}};
}

Differentiator::Result gradients(
    const models::Model& model,
    Trainable& trainable,
    const data::Batch& batch,
    const DifferentiateOptions& options) {
  auto result =
      make_differentiator(model, trainable, options)->apply(batch, mean_loss);
  std::vector<mx::array> all = result.gradients;
  all.push_back(result.sums.loss);
  all.push_back(result.sums.metrics[0].second);
  mx::eval(all);
  return result;
}

// By MLX's own operations: all logits, one graph, in the order of mlx-lm's
// loss.
std::vector<mx::array> plain_gradients(
    const models::Model& model,
    Trainable& trainable,
    const data::Batch& batch) {
  std::vector<size_t> indices(trainable.names().size());
  std::vector<int> arguments(indices.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    indices[i] = i;
    arguments[i] = static_cast<int>(i);
  }
  auto loss = [&](const std::vector<mx::array>& values) {
    std::optional<mx::array> sum;
    trainable.with(indices, values, [&] {
      auto cache = model.make_cache({.per_layer = true});
      mx::Shape shape{batch.rows, batch.length};
      mx::array tokens(batch.tokens.data(), shape, mx::int32);
      mx::array wanted(batch.targets.data(), shape, mx::uint8);
      auto columns = [&](const mx::array& x, int begin, int end) {
        return mx::slice(x, {0, begin}, {batch.rows, end});
      };
      mx::array logits =
          model.forward(columns(tokens, 0, batch.length - 1), cache);
      mx::array scores =
          mx::subtract(logits, mx::stop_gradient(mx::max(logits, -1, true)));
      mx::array chosen = mx::squeeze(
          mx::take_along_axis(
              scores,
              mx::expand_dims(columns(tokens, 1, batch.length), 2),
              2),
          2);
      mx::array targets =
          mx::astype(columns(wanted, 1, batch.length), mx::float32);
      sum = mx::sum(mx::multiply(
          mx::subtract(mx::logsumexp(scores, -1), chosen),
          targets));
    });
    return std::vector<mx::array>{*sum};
  };
  auto result = mx::value_and_grad(loss, arguments)(trainable.values());
  mx::eval(result.second);
  return result.second;
}

// |a - b| / |b| of all gradients as one vector.
double joint_error(
    const std::vector<mx::array>& a,
    const std::vector<mx::array>& b) {
  double gap = 0;
  double size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    gap += mx::sum(mx::square(mx::subtract(a[i], b[i]))).item<float>();
    size += mx::sum(mx::square(b[i])).item<float>();
  }
  return std::sqrt(gap / size);
}

void expect_same(
    const std::vector<mx::array>& a,
    const std::vector<mx::array>& b,
    const Trainable& trainable) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(same_bits(a[i], b[i])) << trainable.names()[i];
  }
}

void expect_close(
    const std::vector<mx::array>& a,
    const std::vector<mx::array>& b,
    float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_LT(relative_error(a[i], b[i]), tolerance) << i;
    EXPECT_GT(mx::max(mx::abs(a[i])).item<float>(), 0) << i;
  }
}

std::vector<DifferentiateOptions> all_ways() {
  return {
      {.recompute = Recompute::none},
      {.recompute = Recompute::checkpoint},
      {.recompute = Recompute::segments, .segment_layers = 1},
      {.recompute = Recompute::segments, .segment_layers = 2},
      {.recompute = Recompute::segments, .segment_layers = 9},
      {.recompute = Recompute::light}};
}

// Where the order of operations is MLX's, its bits; else what float32 keeps of
// sums in another order. Whichever way: the same bits.
void expect_plain_gradients(
    const models::Model& model,
    Trainable& trainable,
    bool fallback) {
  auto batch = row_batch(2, 21);
  auto plain = plain_gradients(model, trainable, batch);
  auto whole = gradients(model, trainable, batch, all_ways()[0]);
  if (fallback) {
    expect_same(whole.gradients, plain, trainable);
  }
  expect_close(whole.gradients, plain, 5e-6f);
  EXPECT_LT(joint_error(whole.gradients, plain), 2e-6);
  for (const auto& way : all_ways()) {
    auto result = gradients(model, trainable, batch, way);
    EXPECT_TRUE(same_bits(result.sums.loss, whole.sums.loss));
    EXPECT_TRUE(
        same_bits(result.sums.metrics[0].second, whole.sums.metrics[0].second));
    expect_same(result.gradients, whole.gradients, trainable);
  }
}

TEST(Differentiator, EveryWayGivesThePlainGradientOfAnAdapter) {
  for (bool fallback : {true, false}) {
    for (int first : {0, 3}) {
      auto model = make_model(tiny_config(), fallback);
      LowRankTrainable trainable(*model, first);
      expect_plain_gradients(*model, trainable, fallback);
    }
  }
}

TEST(Differentiator, EveryWayGivesThePlainGradientOfAllWeights) {
  for (bool fallback : {true, false}) {
    for (bool tied : {true, false}) {
      auto model = make_model(tiny_config("llama", tied), fallback, true);
      WeightTrainable trainable(*model, kLayers);
      expect_plain_gradients(*model, trainable, fallback);
    }
  }
}

// Other orders of sums are no worse ones: about as near to float64 as MLX's
// own.
TEST(Differentiator, IsAsExactAsThePlainGradient) {
  auto make = [](bool fallback) {
    return make_model(tiny_config(), fallback, true);
  };
  auto batch = row_batch(2, 21);
  auto exact_model = make(true);
  exact_model->visit([](const std::string&, Parameter& parameter) {
    mx::array value = mx::astype(parameter.value(), mx::float64);
    parameter.set({value, std::nullopt, std::nullopt});
  });
  WeightTrainable exact_weights(*exact_model, kLayers);
  auto exact = plain_gradients(*exact_model, exact_weights, batch);
  ASSERT_EQ(exact[0].dtype(), mx::float64);
  for (auto& gradient : exact) {
    gradient = mx::astype(gradient, mx::float32);
  }
  double errors[2];
  for (bool fallback : {false, true}) {
    auto model = make(fallback);
    WeightTrainable weights(*model, kLayers);
    errors[fallback ? 1 : 0] = joint_error(
        gradients(*model, weights, batch, all_ways()[0]).gradients,
        exact);
  }
  EXPECT_LT(errors[0], 1.5 * errors[1]);
  EXPECT_LT(errors[0], 3e-6);
}

// Three samples side by side, the last two answers to one prompt.
data::Batch packed_batch() {
  data::Batch batch = row_batch(1, 48);
  batch.segments = {
      {.begin = 0, .end = 17, .sample = 0},
      {.begin = 17, .end = 25, .sample = 1},
      {.begin = 25, .end = 36, .parent = 1, .sample = 1},
      {.begin = 36, .end = 45, .parent = 1, .sample = 1}};
  for (int i = 0; i < batch.length; ++i) {
    bool first = i == 0 || i == 17;
    batch.targets[i] = !first && i < 45;
  }
  return batch;
}

// The rows that a packed one stands for: answers come after their prompt.
data::Batch unpacked(const data::Batch& packed) {
  data::Batch batch;
  batch.length = 25;
  auto add = [&](const data::Segment& segment, bool targets) {
    for (int i = segment.begin; i < segment.end; ++i) {
      batch.tokens.push_back(packed.tokens[i]);
      batch.targets.push_back(targets && packed.targets[i]);
    }
  };
  for (size_t i = 0; i < packed.segments.size(); ++i) {
    const auto& segment = packed.segments[i];
    if (segment.parent >= 0) {
      add(packed.segments[segment.parent], false);
    }
    add(segment, true);
    batch.samples.push_back(segment.sample);
    ++batch.rows;
    batch.tokens.resize(batch.rows * batch.length);
    batch.targets.resize(batch.rows * batch.length);
  }
  return batch;
}

TEST(Differentiator, APackedRowCountsAsItsSamplesByThemselves) {
  auto gpt2 = Json{
      {"model_type", "gpt2"},
      {"vocab_size", kVocabulary},
      {"n_embd", 32},
      {"n_layer", kLayers},
      {"n_head", 2},
      {"n_ctx", 64},
      {"n_positions", 64},
      {"layer_norm_epsilon", 1e-5}};
  for (bool fallback : {false, true}) {
    auto model = make_model(tiny_config(), fallback);
    LowRankTrainable trainable(*model, 0);
    auto packed = packed_batch();
    auto rows = unpacked(packed);
    for (const auto& way : all_ways()) {
      auto a = gradients(*model, trainable, packed, way);
      auto b = gradients(*model, trainable, rows, way);
      EXPECT_LT(relative_error(a.sums.loss, b.sums.loss), 1e-6f);
      expect_close(a.gradients, b.gradients, 2e-5f);
    }
  }
  // With a table of positions.
  auto model = make_model(gpt2);
  auto score = [&](const data::Batch& batch) {
    TextPass pass(*model, batch);
    return mx::sum(pass.scores());
  };
  EXPECT_LT(
      relative_error(score(packed_batch()), score(unpacked(packed_batch()))),
      1e-6f);
}

TEST(Differentiator, RefusesBatchesThatAreNone) {
  auto model = make_model(tiny_config());
  LowRankTrainable trainable(*model, 0);
  auto apply = [&](const std::function<void(data::Batch&)>& change) {
    auto batch = packed_batch();
    change(batch);
    gradients(*model, trainable, batch, {});
  };
  EXPECT_ERROR(
      apply([](auto& b) { b.tokens[3] = kVocabulary; }),
      "invalid_request",
      "token 40 of a vocabulary of 40");
  EXPECT_ERROR(
      apply([](auto& b) { b.targets[17] = 1; }),
      "invalid_request",
      "token 17 is to be predicted");
  EXPECT_ERROR(
      apply([](auto& b) { b.targets[46] = 1; }),
      "invalid_request",
      "token 46 is to be predicted");
  EXPECT_ERROR(
      apply([](auto& b) { b.segments[2].parent = 3; }),
      "invalid_request",
      "parent 3");
  EXPECT_ERROR(
      apply([](auto& b) { b.tokens.pop_back(); }),
      "invalid_request",
      "47 tokens");
  EXPECT_ERROR(
      make_differentiator(*model, trainable, {.segment_layers = -1}),
      "invalid_request",
      "-1 layers");
}

TEST(Differentiator, ABatchWithoutTargetsHasNoGradient) {
  auto model = make_model(tiny_config());
  LowRankTrainable trainable(*model, 0);
  auto batch = row_batch(2, 21);
  std::ranges::fill(batch.targets, 0);
  for (const auto& way : all_ways()) {
    auto result = gradients(*model, trainable, batch, way);
    EXPECT_EQ(result.sums.loss.item<float>(), 0);
    for (const auto& gradient : result.gradients) {
      EXPECT_EQ(mx::max(mx::abs(gradient)).item<float>(), 0);
    }
  }
}

// At three sizes and in three ways; what a plan promises must be there, and
// what it asks for must be used.
TEST(Differentiator, PredictsThePeakOfItsMemory) {
  Json config = tiny_config();
  config["hidden_size"] = 64;
  config["intermediate_size"] = 256;
  config["num_attention_heads"] = 4;
  config["num_key_value_heads"] = 2;
  auto model = make_model(config);
  LowRankTrainable trainable(*model, 0);
  for (int length : {256, 512, 1024}) {
    auto batch = row_batch(1, length);
    for (const auto& way :
         {all_ways()[0],
          all_ways()[1],
          all_ways()[2],
          all_ways()[3],
          all_ways()[5]}) {
      auto differentiator = make_differentiator(*model, trainable, way);
      auto predicted = differentiator->memory(batch, 0);
      clear_cache();
      size_t before = memory_use().active;
      reset_peak_memory();
      auto result = differentiator->apply(batch, mean_loss);
      result.gradients.push_back(result.sums.loss);
      mx::eval(result.gradients);
      double used = static_cast<double>(memory_use().peak - before);
      double ratio = static_cast<double>(predicted.activations) / used;
      EXPECT_GT(ratio, 0.85) << length << differentiator->description();
      if (way.recompute != Recompute::checkpoint &&
          way.recompute != Recompute::light) {
        // A graph does not say when what it drops is computed again.
        EXPECT_LT(ratio, 1.15) << length << differentiator->description();
      }
    }
  }
}

TEST(Differentiator, TakesAsManyLayersAtOnceAsMemoryAllows) {
  auto model = make_model(tiny_config());
  LowRankTrainable trainable(*model, 0);
  auto batch = row_batch(2, 256);
  size_t now = memory_use().active;
  auto described = [&](size_t limit) {
    auto differentiator =
        make_differentiator(*model, trainable, {.memory_limit = limit});
    EXPECT_EQ(differentiator->description(), "automatic");
    auto result = differentiator->apply(batch, mean_loss);
    mx::eval(result.gradients);
    return differentiator->description();
  };
  EXPECT_EQ(described(size_t{1} << 40), "none");
  EXPECT_EQ(described(now + 1), "segments of 1 layer");
}

}  // namespace
}  // namespace mlxx::train
