// A whole model's gradients by parameter name, against finite differences.
#include "mlxx/core/custom_vjp.h"
#include "mlxx/core/parameter_gradients.h"
#include "mlxx/kernels/matmul/matmul.h"
#include "mlxx/kernels/quantized_matmul/quantized_matmul.h"
#include "tests/core/error_of.h"
#include "tests/core/gradient_check.h"
#include "tests/kernels/relative_error.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::models {
namespace {

using Arrays = std::vector<mx::array>;

Json tiny_config() {
  return parse_json(
      R"({"model_type":"llama","vocab_size":32,"hidden_size":32,
          "intermediate_size":64,"num_hidden_layers":2,
          "num_attention_heads":2,"num_key_value_heads":1,"rms_norm_eps":1e-5,
          "tie_word_embeddings":true})",
      "config.json");
}

// As load_model() makes one, but open to changes, as training needs it: what
// `trained` names stays in MLX's form.
std::shared_ptr<Model> tiny_model(
    bool fallback,
    mx::Dtype dtype,
    const FrozenParameters& trained = nullptr) {
  auto checkpoint = random_checkpoint(tiny_config(), std::nullopt, dtype);
  auto selected = selection(fallback);
  std::shared_ptr<Model> model = find_model("llama").make(checkpoint);
  model->visit([&](const std::string& name, Parameter& parameter) {
    mx::array value = checkpoint.load(name, {}).weight;
    parameter.set({value, std::nullopt, std::nullopt});
    if (parameter.kind() == Parameter::Kind::matrix) {
      parameter.set_product(kernels::dense_product(selected));
      if (trained && trained(name)) {
        return;
      }
      if (auto packed = kernels::pack_dense(value, selected)) {
        parameter.set_packed(packed);
      }
    }
  });
  model->use(selected);
  return model;
}

ParameterTree tree_of(Model& model) {
  return [&model](const ParameterVisitor& visitor) { model.visit(visitor); };
}

// Mean of -log p(next token) over a short text.
ArrayFunction loss_of(const Model& model) {
  return [&model](const Arrays&) {
    int ids[] = {1, 7, 3, 30, 5};
    int next[] = {7, 3, 30, 5, 2};
    auto cache = model.make_cache({});
    mx::array logits = model.forward(mx::array(ids, {1, 5}), cache);
    logits = mx::astype(logits, mx::float32);
    mx::array chosen =
        mx::take_along_axis(logits, mx::array(next, {1, 5, 1}), -1);
    mx::array all = mx::logsumexp(logits, -1, true);
    return Arrays{mx::mean(mx::subtract(all, chosen))};
  };
}

// The loss as a function of the parameters that `frozen` leaves, with the
// gradient that ParameterGradients gives; and their values.
struct OfParameters {
  OfParameters(Model& model, const FrozenParameters& frozen) {
    auto parameters = std::make_shared<std::vector<Parameter*>>();
    tree_of(model)([&](const std::string& name, Parameter& parameter) {
      if (!frozen || !frozen(name)) {
        parameters->push_back(&parameter);
        values.push_back(parameter.value());
      }
    });
    auto set = [parameters](const Arrays& x) {
      for (size_t i = 0; i < x.size(); ++i) {
        (*parameters)[i]->set({x[i], std::nullopt, std::nullopt});
      }
    };
    ArrayFunction loss = loss_of(model);
    ParameterGradients gradients(tree_of(model), loss, frozen);
    function = custom_vjp(
        "model",
        [=](const Arrays& x) {
          set(x);
          return loss({});
        },
        [=](const Arrays& x, const Arrays& cotangents, const Arrays&) {
          set(x);
          Arrays result;
          for (const auto& [name, gradient] : gradients.apply({}).gradients) {
            result.push_back(mx::multiply(gradient, cotangents[0]));
          }
          return result;
        });
  }

  ArrayFunction function;
  Arrays values;
};

TEST(ModelGradients, OfEveryParameterAreTheDerivatives) {
  auto model = tiny_model(true, mx::float32);
  OfParameters loss(*model, nullptr);
  EXPECT_EQ(loss.values.size(), 2u + 2 * 9);
  EXPECT_TRUE(check_gradient(
      loss.function,
      loss.values,
      {.tolerance = 5e-3, .directions = 2}));
}

// Weights that kernels hold packed are constants, and gradients pass through
// the kernels to the rest.
TEST(ModelGradients, PassThroughTheCpuKernels) {
  auto model = tiny_model(false, mx::float32);
  auto packed = [&](const std::string& name) {
    bool is_packed = false;
    model->visit([&](const std::string& other, Parameter& parameter) {
      is_packed |= other == name && parameter.packed();
    });
    return is_packed;
  };
  if (!packed("model.embed_tokens.weight")) {
    GTEST_SKIP() << "no CPU kernels";
  }
  EXPECT_ERROR(
      ParameterGradients(tree_of(*model), loss_of(*model)).apply({}),
      "invalid_request",
      "parameter 'model.embed_tokens.weight' is packed");
  OfParameters loss(*model, packed);
  EXPECT_EQ(loss.values.size(), 1u + 2 * 2);
  EXPECT_TRUE(check_gradient(
      loss.function,
      loss.values,
      {.tolerance = 5e-3, .directions = 2}));
}

// Adapters and full training: some matrices are trained, through kernels, above
// and below frozen ones in panels.
TEST(ModelGradients, OfMatricesThroughTheCpuKernels) {
  auto trained = [](const std::string& name) {
    return name.find("q_proj") != std::string::npos ||
        name.find("down_proj") != std::string::npos ||
        name == "model.embed_tokens.weight";
  };
  auto frozen = [&](const std::string& name) { return !trained(name); };
  auto model = tiny_model(false, mx::float32, trained);
  OfParameters loss(*model, frozen);
  EXPECT_EQ(loss.values.size(), 1u + 2 * 2);
  EXPECT_TRUE(check_gradient(
      loss.function,
      loss.values,
      {.tolerance = 5e-3, .directions = 2}));
  // Activations that meet panels are rounded, hence the tolerance.
  auto reference = tiny_model(true, mx::float32);
  auto ours =
      ParameterGradients(tree_of(*model), loss_of(*model), frozen).apply({});
  auto theirs =
      ParameterGradients(tree_of(*reference), loss_of(*reference), frozen)
          .apply({});
  ASSERT_EQ(ours.gradients.size(), theirs.gradients.size());
  for (size_t i = 0; i < ours.gradients.size(); ++i) {
    EXPECT_EQ(ours.gradients[i].name, theirs.gradients[i].name);
    EXPECT_LE(
        relative_error(
            ours.gradients[i].gradient,
            theirs.gradients[i].gradient),
        1e-3f)
        << ours.gradients[i].name;
  }
}

TEST(ModelGradients, KeepTheStoredDtypeAndTheTreesNames) {
  for (auto dtype : {mx::float16, mx::bfloat16}) {
    auto model = tiny_model(true, dtype);
    auto frozen = [](const std::string& name) {
      return !name.starts_with("model.layers.1.");
    };
    auto result =
        ParameterGradients(tree_of(*model), loss_of(*model), frozen).apply({});
    EXPECT_EQ(result.gradients.size(), 9u);
    for (const auto& [name, gradient] : result.gradients) {
      EXPECT_TRUE(name.starts_with("model.layers.1.")) << name;
      EXPECT_EQ(gradient.dtype(), dtype) << name;
      mx::array largest = mx::max(mx::abs(mx::astype(gradient, mx::float32)));
      EXPECT_GT(largest.item<float>(), 0) << name;
    }
  }
}

}  // namespace
}  // namespace mlxx::models
