#include "mlxx/nn/latent_attention.h"

#include <gtest/gtest.h>

#include "mlxx/cache/dense.h"
#include "mlxx/cache/padded.h"
#include "mlxx/kernels/expert_matmul/expert_matmul.h"
#include "mlxx/kernels/quantized_matmul/quantized_matmul.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::nn {
namespace {

constexpr int kHidden = 64;

LatentAttentionSpec spec_of(int query_rank) {
  RopeOptions rope;
  rope.dims = 16;
  rope.traditional = true;
  return {
      .hidden_size = kHidden,
      .heads = 4,
      .query_rank = query_rank,
      .latent_size = 32,
      .plain_size = 32,
      .rope_size = 16,
      .value_size = 64,
      .scale = 0.15f,
      .bias = false,
      .rope = make_rope(rope, std::nullopt)};
}

enum class Form { plain, quantized, packed };

LatentAttention make(Form form, int query_rank) {
  LatentAttention attention(spec_of(query_rank));
  kernels::Selection best = kernels::select_best();
  best.activations = kernels::ActivationForm::float32;
  int seed = 1;
  attention.visit("m", [&](const std::string&, Parameter& parameter) {
    bool is_matrix = parameter.kind() == Parameter::Kind::matrix;
    mx::array value =
        mx::multiply(normal(parameter.shape(), seed++), mx::array(0.2f));
    if (!is_matrix) {
      value = mx::add(value, mx::array(1.0f));
    }
    WeightArrays arrays{value, std::nullopt, std::nullopt};
    std::optional<QuantizationSpec> quantization;
    if (is_matrix && form == Form::quantized) {
      auto parts = mx::quantize(value, 32, 8);
      arrays = {parts[0], parts[1], parts[2]};
      quantization = QuantizationSpec{32, 8, "affine"};
    }
    parameter.set(arrays, quantization);
    if (is_matrix && form == Form::packed) {
      parameter.set_packed(
          parameter.shape().size() == 3
              ? kernels::pack_experts(arrays, std::nullopt, best)
              : kernels::pack_dense(value, best));
    }
  });
  if (form == Form::packed) {
    attention.use(best);
  }
  return attention;
}

// [B, L, E] when the tokens come in pieces of these lengths.
mx::array in_pieces(
    const LatentAttention& attention,
    const mx::array& x,
    const std::vector<int>& lengths,
    cache::KVCache& cache) {
  std::vector<mx::array> parts;
  int at = 0;
  for (int n : lengths) {
    mx::array piece = mx::slice(x, {0, at, 0}, {x.shape(0), at + n, kHidden});
    parts.push_back(attention(piece, cache.make_mask(n), cache));
    at += n;
  }
  return mx::concatenate(parts, 1);
}

mx::array in_pieces(
    const LatentAttention& attention,
    const mx::array& x,
    const std::vector<int>& lengths) {
  cache::DenseCache cache;
  return in_pieces(attention, x, lengths, cache);
}

// Expanded keys and values give what attending to the latents gives.
TEST(LatentAttention, OneTokenAgreesWithMany) {
  for (int query_rank : {0, 32}) {
    for (Form form : {Form::plain, Form::quantized, Form::packed}) {
      LatentAttention attention = make(form, query_rank);
      mx::array x = normal({2, 12, kHidden}, 40);
      mx::array whole = in_pieces(attention, x, {12});
      EXPECT_EQ(whole.shape(), x.shape());
      EXPECT_LT(
          relative_error(
              in_pieces(attention, x, {5, 1, 1, 1, 1, 1, 1, 1}),
              whole),
          1e-5)
          << static_cast<int>(form);
    }
  }
}

TEST(LatentAttention, PackedMatricesAgreeWithPlainOnes) {
  mx::array x = normal({2, 40, kHidden}, 40);
  for (int query_rank : {0, 32}) {
    EXPECT_LT(
        relative_error(
            in_pieces(make(Form::packed, query_rank), x, {30, 10}),
            in_pieces(make(Form::plain, query_rank), x, {30, 10})),
        1e-5);
  }
}

TEST(LatentAttention, APackedTokenHasTheSameBitsInEverySplit) {
  LatentAttention attention = make(Form::packed, 32);
  mx::array x = normal({1, 20, kHidden}, 3);
  mx::array whole = in_pieces(attention, x, {20});
  EXPECT_TRUE(same_bits(in_pieces(attention, x, {7, 1, 11, 1}), whole));
}

TEST(LatentAttention, PaddingIsNotSeen) {
  for (Form form : {Form::plain, Form::packed}) {
    LatentAttention attention = make(form, 32);
    mx::array row = normal({1, 9, kHidden}, 3);
    mx::array padding = normal({1, 4, kHidden}, 4);
    mx::array x = mx::concatenate(
        {mx::concatenate({padding, row}, 1), normal({1, 13, kHidden}, 5)},
        0);
    cache::PaddedCache cache(std::make_unique<cache::DenseCache>(), {4, 0});
    mx::array both = in_pieces(attention, x, {11, 1, 1}, cache);
    EXPECT_LT(
        relative_error(
            mx::slice(both, {0, 4, 0}, {1, 13, kHidden}),
            in_pieces(attention, row, {9})),
        1e-5)
        << static_cast<int>(form);
  }
}

}  // namespace
}  // namespace mlxx::nn
