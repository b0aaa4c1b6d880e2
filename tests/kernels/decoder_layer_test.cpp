// Single layers of a decoder as operations of MLX.
#include "mlxx/kernels/decoder_layer/decoder_layer.h"

#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "mlxx/kernels/decode_step/decode_step.h"
#include "tests/kernels/random_decoder.h"
#include "tests/kernels/reference_decoder.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::kernels {
namespace {

constexpr int kHidden = RandomDecoder::kHidden;

// A decoder with something of its own in each layer.
RandomDecoder random_layers(const Selection& selection) {
  RandomDecoder d(selection);
  d.weights.rotations.push_back(RandomDecoder::rotation(8, 100));
  d.weights.layers[0].rotation = 1;
  d.weights.layers[0].q_norm = {d.rms(16)};
  d.weights.layers[1].after_mlp = d.rms(kHidden);
  d.weights.layers[1].sinks = d.numbers(4, 1, 1);
  return d;
}

std::shared_ptr<const DecoderWeights> layers_only(const Selection& selection) {
  auto weights =
      std::make_shared<DecoderWeights>(random_layers(selection).weights);
  weights->embedding = nullptr;
  weights->head = {};
  EXPECT_EQ(why_not_run(*weights), "");
  return weights;
}

// A layer's cache for a batch.
struct State {
  State(const DecoderLayers& layers, int rows) {
    for (int i = 0; i < rows; ++i) {
      sequences.push_back(std::make_unique<SequenceKv>(layers.kv_shape()));
      all.push_back(sequences.back().get());
    }
  }
  mx::array
  operator()(const DecoderLayers& layers, int index, const mx::array& x) {
    auto [hidden, done] = layers(index, x, all, previous);
    previous.assign({done});
    return hidden;
  }

  std::vector<std::unique_ptr<SequenceKv>> sequences;
  std::vector<SequenceKv*> all;
  std::vector<mx::array> previous;
};

mx::array tokens_of(const mx::array& x, int from, int to) {
  return mx::slice(x, {0, from, 0}, {x.shape(0), to, x.shape(2)});
}

Selection selection_of(
    InstructionSet set,
    int threads,
    ActivationForm form = ActivationForm::int16) {
  return {
      .instruction_set = set,
      .threads = std::make_shared<ThreadPool>(threads),
      .activations = form};
}

TEST(DecoderLayer, AgreesWithDoublePrecision) {
  mx::array x = mx::contiguous(normal({2, 140, kHidden}, 1));
  mx::eval(x);
  auto any = layers_only(select_best());
  ReferenceDecoder reference(*any);
  for (int index : {0, 1}) {
    std::vector<mx::array> expected;
    for (int row = 0; row < 2; ++row) {
      ReferenceDecoder::Rows rows;
      const float* from = x.data<float>() + row * 140 * kHidden;
      for (int t = 0; t < 140; ++t, from += kHidden) {
        rows.emplace_back(from, from + kHidden);
      }
      std::vector<float> flat;
      for (const auto& out : reference.layer(index, rows)) {
        flat.insert(flat.end(), out.begin(), out.end());
      }
      expected.emplace_back(
          flat.data(),
          mx::Shape{1, 140, kHidden},
          mx::float32);
    }
    for (InstructionSet set : available_instruction_sets()) {
      auto selection = selection_of(set, 2, ActivationForm::float32);
      DecoderLayers layers(layers_only(selection), selection);
      State state(layers, 2);
      // A transposed array is no row of numbers.
      mx::array first = mx::swapaxes(
          mx::contiguous(mx::swapaxes(tokens_of(x, 0, 139), 1, 2)),
          1,
          2);
      mx::array got = mx::concatenate(
          {state(layers, index, first),
           state(layers, index, tokens_of(x, 139, 140))},
          1);
      EXPECT_LT(relative_error(got, mx::concatenate(expected, 0)), 5e-6f)
          << to_string(set) << " layer " << index;
    }
  }
}

// One after the other, the layers are those of the whole program.
TEST(DecoderLayer, GivesARowTheSameBitsInEveryCompany) {
  mx::array x = normal({1, 60, kHidden}, 1);
  for (InstructionSet set : available_instruction_sets()) {
    std::optional<mx::array> expected;
    for (int threads : {1, 2}) {
      auto selection = selection_of(set, threads);
      DecoderLayers layers(layers_only(selection), selection);
      for (int rows : {1, 2, 8, 33}) {
        for (const auto& pieces :
             {std::vector<int>{60}, {33, 1, 2, 8, 15, 1}}) {
          State first(layers, rows);
          State second(layers, rows);
          std::vector<mx::array> parts;
          int at = 0;
          for (int n : pieces) {
            mx::array all = mx::repeat(tokens_of(x, at, at + n), rows, 0);
            parts.push_back(second(layers, 1, first(layers, 0, all)));
            at += n;
          }
          mx::array got = mx::concatenate(parts, 1);
          mx::array last =
              mx::slice(got, {rows - 1, 0, 0}, {rows, 60, kHidden});
          if (!expected) {
            expected = last;
          }
          EXPECT_TRUE(same_bits(last, *expected))
              << to_string(set) << " " << threads << " " << rows;
        }
      }
    }
  }
}

TEST(DecoderLayer, RefusesOtherShapes) {
  auto selection = select_best();
  DecoderLayers layers(layers_only(selection), selection);
  State state(layers, 2);
  for (const mx::Shape& shape :
       {mx::Shape{2, kHidden},
        mx::Shape{2, 3, kHidden + 1},
        mx::Shape{1, 3, kHidden},
        mx::Shape{2, 0, kHidden}}) {
    EXPECT_THROW(state(layers, 0, mx::zeros(shape)), Error);
  }
  EXPECT_THROW(state(layers, 2, mx::zeros({2, 1, kHidden})), Error);
  EXPECT_EQ(state.sequences[0]->length(), 0);
}

}  // namespace
}  // namespace mlxx::kernels
