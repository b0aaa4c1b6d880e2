// Scores of targets without all logits, with their gradients.
#include <gtest/gtest.h>

#include "mlxx/core/device.h"
#include "mlxx/core/memory.h"
#include "mlxx/kernels/linear_cross_entropy/linear_cross_entropy.h"
#include "mlxx/kernels/matmul/matmul.h"
#include "mlxx/kernels/quantized_matmul/quantized_matmul.h"
#include "tests/core/error_of.h"
#include "tests/core/gradient_check.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::kernels {
namespace {

using Arrays = std::vector<mx::array>;

constexpr int kSize = 64;

enum class Held { dense, quantized, packed, packed_quantized };

Parameter weight_of(const mx::array& value, Held held) {
  Parameter weight(value.shape(), Parameter::Kind::matrix);
  Selection selection = select_best();
  if (held == Held::dense || held == Held::packed) {
    weight.set({value, std::nullopt, std::nullopt});
    if (held == Held::packed) {
      weight.set_packed(pack_dense(value, selection));
    }
    return weight;
  }
  QuantizationSpec spec{32, 8, "affine"};
  auto parts = mx::quantize(value, spec.group_size, spec.bits, spec.mode);
  WeightArrays arrays{parts[0], parts[1], parts[2]};
  weight.set(arrays, spec);
  if (held == Held::packed_quantized) {
    // Whole numbers would round what meets them.
    selection.activations = ActivationForm::float32;
    weight.set_packed(pack_quantized(arrays, spec, selection));
  }
  return weight;
}

mx::array dense_of(const Parameter& weight) {
  auto arrays = weight.restore();
  if (!weight.quantization()) {
    return arrays.weight;
  }
  return mx::dequantize(
      arrays.weight,
      *arrays.scales,
      arrays.biases,
      32,
      8,
      "affine");
}

mx::array targets_of(int count, int vocabulary) {
  std::vector<int> targets;
  for (int i = 0; i < count; ++i) {
    targets.push_back(i * 7919 % vocabulary);
  }
  return mx::array(targets.data(), {count}, mx::int32);
}

mx::array
plain(const Arrays& x, const mx::array& targets, const LogitForm& form) {
  mx::array logits = mx::multiply(
      mx::matmul(x[0], mx::transpose(x[1])),
      mx::array(form.factor));
  if (x.size() > 2) {
    logits = mx::add(logits, mx::multiply(x[2], mx::array(form.bias_factor)));
  }
  if (form.softcap != 0) {
    mx::array cap(form.softcap);
    logits = mx::multiply(mx::tanh(mx::divide(logits, cap)), cap);
  }
  mx::array chosen =
      mx::take_along_axis(logits, mx::expand_dims(targets, 1), 1);
  return mx::squeeze(mx::subtract(chosen, mx::logsumexp(logits, 1, true)), 1);
}

// Value and gradients in all of x, by weights that differ from row to row.
Arrays differentiated(
    const std::function<mx::array(const Arrays&)>& function,
    const Arrays& x) {
  std::optional<mx::array> scores;
  std::vector<int> all;
  for (size_t i = 0; i < x.size(); ++i) {
    all.push_back(static_cast<int>(i));
  }
  auto loss = [&](const Arrays& in) {
    scores = function(in);
    return Arrays{mx::sum(mx::multiply(*scores, normal(scores->shape(), 31)))};
  };
  Arrays result = mx::value_and_grad(loss, all)(x).second;
  result.push_back(*scores);
  mx::eval(result);
  return result;
}

TEST(LinearCrossEntropy, IsThePlainOneOnEveryFormOfAWeight) {
  for (int vocabulary : {50, 1000}) {
    mx::array value =
        mx::multiply(normal({vocabulary, kSize}, 1), mx::array(0.3f));
    for (int count : {1, 3, 300}) {
      mx::array rows = normal({count, kSize}, 2);
      mx::array targets = targets_of(count, vocabulary);
      for (Held held :
           {Held::dense,
            Held::quantized,
            Held::packed,
            Held::packed_quantized}) {
        Parameter weight = weight_of(value, held);
        ASSERT_EQ(
            weight.packed() != nullptr,
            held >= Held::packed && backend() == Backend::cpu);
        mx::array dense = dense_of(weight);
        for (float softcap : {0.0f, 5.0f}) {
          LogitForm form{.weight = &weight, .factor = 1.3f, .softcap = softcap};
          auto expected = differentiated(
              [&](const Arrays& x) {
                return plain({x[0], dense}, targets, form);
              },
              {rows});
          auto ours = differentiated(
              [&](const Arrays& x) {
                return linear_log_probabilities(
                    x[0],
                    targets,
                    form,
                    select_best());
              },
              {rows});
          for (size_t i = 0; i < ours.size(); ++i) {
            EXPECT_LT(relative_error(ours[i], expected[i]), 5e-6f)
                << i << " " << static_cast<int>(held) << " " << count;
          }
          form.differentiable = false;
          EXPECT_TRUE(same_bits(
              linear_log_probabilities(rows, targets, form, select_best()),
              ours.back()));
        }
      }
    }
  }
}

TEST(LinearCrossEntropy, PassesGradientsToAWeightThatIsTrained) {
  Parameter weight = weight_of(normal({200, kSize}, 1), Held::dense);
  Parameter bias(mx::Shape{200}, Parameter::Kind::tensor);
  bias.set({normal({200}, 5), std::nullopt, std::nullopt});
  mx::array targets = targets_of(300, 200);
  for (bool with_product : {false, true}) {
    weight.set_product(with_product ? dense_product(select_best()) : nullptr);
    for (bool with_bias : {false, true}) {
      Arrays x{normal({300, kSize}, 2), weight.value()};
      LogitForm form{
          .weight = &weight,
          .factor = 0.2f,
          .bias_factor = 0.6f,
          .softcap = 4};
      if (with_bias) {
        x.push_back(bias.value());
        form.bias = &bias;
      }
      form.trains_weight = true;
      auto expected = differentiated(
          [&](const Arrays& in) { return plain(in, targets, form); },
          x);
      mx::array before = weight.value();
      mx::array bias_before = bias.value();
      auto ours = differentiated(
          [&](const Arrays& in) {
            weight.set({in[1], std::nullopt, std::nullopt});
            if (with_bias) {
              bias.set({in[2], std::nullopt, std::nullopt});
            }
            return linear_log_probabilities(
                in[0],
                targets,
                form,
                select_best());
          },
          x);
      weight.set({before, std::nullopt, std::nullopt});
      bias.set({bias_before, std::nullopt, std::nullopt});
      for (size_t i = 0; i < ours.size(); ++i) {
        EXPECT_LT(relative_error(ours[i], expected[i]), 5e-6f) << i;
      }
    }
  }
}

// Logits a hundred apart: nothing overflows, and scores near 0 stay exact.
TEST(LinearCrossEntropy, TakesExtremeLogits) {
  mx::array value = mx::multiply(normal({100, kSize}, 1), mx::array(20.0f));
  mx::array rows = normal({20, kSize}, 2);
  mx::array targets = targets_of(20, 100);
  for (Held held : {Held::dense, Held::packed}) {
    Parameter weight = weight_of(value, held);
    LogitForm form{.weight = &weight};
    auto expected = differentiated(
        [&](const Arrays& x) { return plain({x[0], value}, targets, form); },
        {rows});
    auto ours = differentiated(
        [&](const Arrays& x) {
          return linear_log_probabilities(x[0], targets, form, select_best());
        },
        {rows});
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_LT(relative_error(ours[i], expected[i]), 1e-5f) << i;
    }
  }
}

TEST(LinearCrossEntropy, NeverHoldsAllLogits) {
  constexpr int kVocabulary = 4000;
  mx::array value = normal({kVocabulary, kSize}, 1);
  mx::array rows = normal({3000, kSize}, 2);
  mx::array targets = targets_of(3000, kVocabulary);
  size_t all = size_t{3000} * kVocabulary * sizeof(float);
  Parameter weight = weight_of(value, Held::packed);
  mx::eval(rows, targets);
  reset_peak_memory();
  size_t before = memory_use().active;
  differentiated(
      [&](const Arrays& x) {
        return linear_log_probabilities(
            x[0],
            targets,
            {.weight = &weight},
            select_best());
      },
      {rows});
  EXPECT_LT(memory_use().peak - before, all / 4);
}

TEST(LinearCrossEntropy, RefusesWhatDoesNotFit) {
  Parameter weight = weight_of(normal({50, kSize}, 1), Held::packed);
  auto call = [&](mx::Shape rows, int targets, bool trains) {
    linear_log_probabilities(
        mx::zeros(rows),
        mx::zeros({targets}, mx::int32),
        {.weight = &weight, .trains_weight = trains});
  };
  EXPECT_ERROR(call({3, 63}, 3, false), "internal", "fit");
  EXPECT_ERROR(call({3, kSize}, 2, false), "internal", "fit");
  EXPECT_ERROR(call({3, kSize}, 3, true), "internal", "dense");
}

}  // namespace
}  // namespace mlxx::kernels
