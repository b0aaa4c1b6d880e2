// What layers of a decoder may have, each against double precision and in
// every company.
#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "mlxx/kernels/decode_step/decode_step.h"
#include "tests/kernels/random_decoder.h"
#include "tests/kernels/reference_decoder.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::kernels {
namespace {

using Change = std::function<void(RandomDecoder&)>;
using Sequences = std::vector<std::unique_ptr<SequenceKv>>;

struct Shape {
  int head_size = 16;
  int heads = 4;
  int kv_heads = 2;
};

std::vector<int> random_tokens(int n) {
  std::mt19937 random(3);
  std::vector<int> tokens(n);
  for (int& token : tokens) {
    token = static_cast<int>(random() % RandomDecoder::kWords);
  }
  return tokens;
}

// One sequence or several, fed piece by piece.
class Decoding {
 public:
  Decoding(const DecodeStep& step, int rows) : step_(step) {
    for (int i = 0; i < rows; ++i) {
      sequences_.push_back(std::make_unique<SequenceKv>(step.kv_shape()));
      all_.push_back(sequences_.back().get());
    }
  }
  // tokens of every row -> [rows, L, V]
  mx::array operator()(std::span<const int> tokens) {
    mx::array ids(
        tokens.data(),
        {1, static_cast<int>(tokens.size())},
        mx::int32);
    auto [logits, done] = step_(
        mx::repeat(ids, static_cast<int>(sequences_.size()), 0),
        all_,
        previous_,
        LogitRows::all);
    mx::eval(logits);
    previous_.assign({done});
    return logits;
  }

 private:
  const DecodeStep& step_;
  Sequences sequences_;
  std::vector<SequenceKv*> all_;
  std::vector<mx::array> previous_;
};

mx::array to_array(const ReferenceDecoder::Rows& rows) {
  std::vector<float> flat;
  for (const auto& row : rows) {
    flat.insert(flat.end(), row.begin(), row.end());
  }
  int n = static_cast<int>(rows.size());
  return mx::array(
      flat.data(),
      {1, n, static_cast<int>(rows[0].size())},
      mx::float32);
}

DecodeStep make_step(
    const Change& change,
    const Shape& shape,
    const Selection& selection) {
  RandomDecoder decoder(
      selection,
      shape.head_size,
      shape.heads,
      shape.kv_heads);
  change(decoder);
  EXPECT_EQ(why_not_run(decoder.weights), "");
  return {
      std::make_shared<DecoderWeights>(std::move(decoder.weights)),
      selection};
}

// Longer than a split of the attention.
constexpr int kTokens = 140;

void expect_agreement(const Change& change, const Shape& shape) {
  auto tokens = random_tokens(kTokens);
  RandomDecoder same(
      select_best(),
      shape.head_size,
      shape.heads,
      shape.kv_heads);
  change(same);
  mx::array expected = to_array(ReferenceDecoder(same.weights).logits(tokens));
  for (InstructionSet set : available_instruction_sets()) {
    for (auto [form, bound] :
         {std::pair{ActivationForm::float32, 1e-5f},
          {ActivationForm::int16, 2e-3f}}) {
      DecodeStep step = make_step(
          change,
          shape,
          {.instruction_set = set,
           .threads = std::make_shared<ThreadPool>(2),
           .activations = form});
      // As one prompt, and then by steps of one token.
      Decoding run(step, 1);
      auto all = std::span<const int>(tokens);
      std::vector<mx::array> parts{run(all.first(130))};
      for (int t = 130; t < kTokens; ++t) {
        parts.push_back(run(all.subspan(t, 1)));
      }
      EXPECT_LT(relative_error(mx::concatenate(parts, 1), expected), bound)
          << to_string(set) << " " << to_string(form);
    }
  }
}

void expect_same_bits(const Change& change, const Shape& shape) {
  auto tokens = random_tokens(kTokens);
  auto all = std::span<const int>(tokens);
  for (InstructionSet set : available_instruction_sets()) {
    std::optional<mx::array> expected;
    for (int threads : {1, 2}) {
      DecodeStep step = make_step(
          change,
          shape,
          {.instruction_set = set,
           .threads = std::make_shared<ThreadPool>(threads)});
      for (const auto& pieces :
           {std::vector<int>{kTokens}, {33, 1, 2, 3, 8, 90, 1, 1, 1}}) {
        Decoding run(step, 1);
        std::vector<mx::array> parts;
        size_t at = 0;
        for (int n : pieces) {
          parts.push_back(run(all.subspan(at, n)));
          at += n;
        }
        mx::array logits = mx::concatenate(parts, 1);
        if (!expected) {
          expected = logits;
        }
        EXPECT_TRUE(same_bits(logits, *expected))
            << to_string(set) << " " << threads << " " << pieces[0];
      }
    }
    DecodeStep step = make_step(
        change,
        shape,
        {.instruction_set = set, .threads = std::make_shared<ThreadPool>(2)});
    int words = RandomDecoder::kWords;
    constexpr int kFew = 40;
    mx::array last = mx::slice(*expected, {0, kFew - 1, 0}, {1, kFew, words});
    for (int rows : {2, 8, 33}) {
      Decoding run(step, rows);
      run(all.first(kFew - 1));
      mx::array got = run(all.subspan(kFew - 1, 1));
      for (int row : {0, rows - 1}) {
        EXPECT_TRUE(
            same_bits(mx::slice(got, {row, 0, 0}, {row + 1, 1, words}), last))
            << to_string(set) << " row " << row << " of " << rows;
      }
    }
  }
}

void expect_covered(const Change& change, const Shape& shape = {}) {
  expect_agreement(change, shape);
  expect_same_bits(change, shape);
}

void each_layer(
    RandomDecoder& decoder,
    const std::function<void(DecoderLayerWeights&)>& change) {
  for (auto& layer : decoder.weights.layers) {
    change(layer);
  }
}

TEST(DecoderFeatures, LlamaWithBiases) {
  expect_covered([](RandomDecoder& d) {
    each_layer(d, [&](auto& layer) {
      for (auto* linear :
           {&layer.q,
            &layer.k,
            &layer.v,
            &layer.o,
            &layer.gate,
            &layer.up,
            &layer.down}) {
        linear->bias = d.numbers(linear->matrix->out(), 0, 0.3f);
      }
    });
    d.weights.head = {
        d.matrix(RandomDecoder::kWords, RandomDecoder::kHidden),
        d.numbers(RandomDecoder::kWords, 0, 0.3f)};
  });
}

TEST(DecoderFeatures, LayersRotateInTheirOwnWay) {
  expect_covered([](RandomDecoder& d) {
    auto partial = RandomDecoder::rotation(8, 500);
    partial.scale = 1.2;
    partial.pairs = true;
    d.weights.rotations.push_back(partial);
    d.weights.layers[0].rotation = 1;
    d.weights.layers[1].rotation = -1;
    d.weights.layers.push_back(d.weights.layers[0]);
    d.weights.layers[2].rotation = 0;
  });
}

TEST(DecoderFeatures, Windows) {
  expect_covered([](RandomDecoder& d) {
    d.weights.layers[0].window = 7;
    d.weights.layers[1].window = 129;
  });
}

TEST(DecoderFeatures, NormsOfEachHead) {
  expect_covered([](RandomDecoder& d) {
    each_layer(d, [&](auto& layer) {
      layer.q_norm = {d.rms(16)};
      layer.k_norm = {d.rms(16)};
    });
    // Cohere's: every head its own.
    d.weights.layers[1].q_norm = {d.layer_norm(64, false)};
    d.weights.layers[1].k_norm = {d.layer_norm(32, false)};
  });
}

TEST(DecoderFeatures, NormsOfAllHeadsTogether) {
  expect_covered([](RandomDecoder& d) {
    each_layer(d, [&](auto& layer) {
      layer.q_norm = {d.rms(64), true};
      layer.k_norm = {d.rms(32), true};
    });
  });
}

TEST(DecoderFeatures, LayerNormsWithAndWithoutABias) {
  expect_covered([](RandomDecoder& d) {
    each_layer(d, [&](auto& layer) {
      layer.before_attention = d.layer_norm(RandomDecoder::kHidden, true);
      layer.before_mlp = d.layer_norm(RandomDecoder::kHidden, false);
    });
    d.weights.final_norm = d.layer_norm(RandomDecoder::kHidden, true);
  });
}

TEST(DecoderFeatures, NormsBeforeAndAfter) {
  expect_covered([](RandomDecoder& d) {
    each_layer(d, [&](auto& layer) {
      layer.after_attention = d.rms(RandomDecoder::kHidden);
      layer.after_mlp = d.rms(RandomDecoder::kHidden);
      layer.residual_multiplier = 0.7f;
    });
  });
}

TEST(DecoderFeatures, NormsAfterOnly) {
  expect_covered([](RandomDecoder& d) {
    each_layer(d, [&](auto& layer) {
      layer.after_attention = std::move(layer.before_attention);
      layer.after_mlp = std::move(layer.before_mlp);
      layer.before_attention = {};
      layer.before_mlp = {};
    });
  });
}

TEST(DecoderFeatures, AttentionBesideTheNetwork) {
  expect_covered([](RandomDecoder& d) {
    each_layer(d, [&](auto& layer) {
      layer.parallel = true;
      layer.before_mlp = layer.before_attention;
    });
    d.weights.layers[1].before_mlp = d.layer_norm(RandomDecoder::kHidden, true);
  });
}

TEST(DecoderFeatures, NetworksOfEveryKind) {
  for (auto activation :
       {Activation::silu,
        Activation::gelu,
        Activation::gelu_tanh,
        Activation::relu_squared}) {
    expect_covered([&](RandomDecoder& d) {
      each_layer(d, [&](auto& layer) { layer.activation = activation; });
      auto& plain = d.weights.layers[1];
      plain.gate = {};
      plain.up.bias = d.numbers(RandomDecoder::kInner, 0, 0.3f);
      plain.down.bias = d.numbers(RandomDecoder::kHidden, 0, 0.3f);
    });
  }
}

TEST(DecoderFeatures, AttentionAlone) {
  expect_covered([](RandomDecoder& d) {
    auto& layer = d.weights.layers[0];
    layer.gate = {};
    layer.up = {};
    layer.down = {};
    layer.before_mlp = {};
    layer.parallel = true;
  });
}

TEST(DecoderFeatures, SoftcapsAndSinks) {
  expect_covered([](RandomDecoder& d) {
    each_layer(d, [&](auto& layer) { layer.attention_scale = 1; });
    d.weights.layers[0].softcap = 3;
    d.weights.layers[1].sinks = d.numbers(4, 1, 2);
    d.weights.layers.push_back(d.weights.layers[0]);
    d.weights.layers[2].sinks = d.numbers(4, 4, 2);
    d.weights.layers[2].window = 20;
  });
}

TEST(DecoderFeatures, MultipliersAndTheLastSoftcap) {
  expect_covered([](RandomDecoder& d) {
    d.weights.embedding_multiplier = 3.5f;
    d.weights.logits_multiplier = 0.25f;
    d.weights.final_softcap = 1.5f;
    each_layer(d, [&](auto& layer) {
      layer.residual_multiplier = 0.22f;
      layer.query_scale = {0.4f, 16};
    });
  });
}

TEST(DecoderFeatures, LearnedPositions) {
  expect_covered([](RandomDecoder& d) {
    d.weights.positions = d.matrix(kTokens, RandomDecoder::kHidden);
    each_layer(d, [&](auto& layer) { layer.rotation = -1; });
  });
}

TEST(DecoderFeatures, HeadsOfEverySize) {
  auto change = [](RandomDecoder& d) {
    each_layer(d, [&](auto& layer) {
      layer.q_norm = {d.rms(d.weights.head_size)};
      layer.k_norm = {d.rms(d.weights.head_size)};
      layer.softcap = 20;
    });
  };
  for (const Shape& shape :
       {Shape{64, 2, 1},
        Shape{80, 2, 2},
        Shape{96, 3, 1},
        Shape{128, 4, 2},
        Shape{32, 24, 1}}) {
    expect_agreement(change, shape);
  }
  expect_covered(change, {256, 2, 1});
}

TEST(DecoderFeatures, PositionsPastTheLastOneAreRefused) {
  DecodeStep step = make_step(
      [](RandomDecoder& d) {
        d.weights.positions = d.matrix(10, RandomDecoder::kHidden);
      },
      {},
      select_best());
  auto tokens = random_tokens(11);
  Decoding run(step, 1);
  run(std::span<const int>(tokens).first(9));
  try {
    run(std::span<const int>(tokens).first(2));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
    EXPECT_STREQ(
        error.what(),
        "[decode step] position 11 is past the 10 that this model has");
  }
  run(std::span<const int>(tokens).first(1));
}

TEST(DecoderFeatures, SaysWhatItDoesNotCover) {
  const std::pair<Change, const char*> cases[] = {
      {[](auto& d) { d.weights.head_size = 24; },
       "a head size of 24, which is no multiple of 16"},
      {[](auto& d) { d.weights.heads = 50; },
       "50 heads of queries for 2 of keys, more than 24 for one"},
      {[](auto& d) {
         d.weights.rotations.push_back(RandomDecoder::rotation(32, 10));
       },
       "rotations of 32 numbers in a head of 16"},
      {[](auto& d) { d.weights.layers[1].k = {d.matrix(64, 64), {}}; },
       "layer 1 has k of 64 x 64, not 32 x 64"},
      {[](auto& d) { d.weights.layers[1].q_norm = {d.rms(17)}; },
       "layer 1 has 17 numbers in a vector of the norm of queries, not 64"},
      {[](auto& d) { d.weights.layers[0].up = {}; },
       "layer 0 has no matrix for up"},
      {[](auto& d) { d.weights.layers[0].sinks = {1, 2}; },
       "layer 0 has 2 numbers in a vector of sinks, not 4"},
      {[](auto& d) { d.weights.layers[0].rotation = 3; },
       "layer 0 has rotation 3 of 1"},
  };
  for (const auto& [change, text] : cases) {
    RandomDecoder decoder(select_best());
    change(decoder);
    EXPECT_EQ(why_not_run(decoder.weights), text);
  }
}

}  // namespace
}  // namespace mlxx::kernels
