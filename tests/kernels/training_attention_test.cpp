// Attention of whole texts with a backward pass of its own.
#include <numeric>

#include <gtest/gtest.h>

#include "mlxx/core/memory.h"
#include "mlxx/kernels/attention/attention.h"
#include "mlxx/kernels/attention/seen_tokens.h"
#include "mlxx/kernels/attention/training_attention.h"
#include "tests/core/error_of.h"
#include "tests/core/gradient_check.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::kernels {
namespace {

using Arrays = std::vector<mx::array>;

std::vector<Selection> selections() {
  Selection portable = select_best();
  portable.instruction_set = InstructionSet::portable;
  return {Selection{}, portable, select_best()};
}

// Which key each query sees, written down from the rule itself.
mx::array
mask_of(const std::vector<RowSegment>& segments, int window, int length) {
  auto segment_of = [&](int token) {
    for (size_t i = 0; i < segments.size(); ++i) {
      if (token >= segments[i].begin && token < segments[i].end) {
        return static_cast<int>(i);
      }
    }
    return -1;
  };
  auto position = [&](int token) {
    int segment = segment_of(token);
    if (segment < 0) {
      return token;
    }
    int at = token - segments[segment].begin;
    int parent = segments[segment].parent;
    return parent < 0 ? at : at + segments[parent].end - segments[parent].begin;
  };
  std::vector<uint8_t> mask;
  for (int q = 0; q < length; ++q) {
    for (int k = 0; k < length; ++k) {
      int own = segment_of(q);
      int other = segment_of(k);
      bool seen = segments.empty() || (own >= 0 && own == other) ||
          (own >= 0 && other >= 0 && segments[own].parent == other);
      if (!segments.empty() && own < 0) {
        seen = q == k;
      }
      int distance = position(q) - position(k);
      mask.push_back(seen && k <= q && (window == 0 || distance < window));
    }
  }
  return mx::astype(
      mx::array(mask.data(), {length, length}, mx::uint8),
      mx::bool_);
}

struct Shape {
  int batch;
  int heads;
  int kv_heads;
  int length;
  int size;
};

Arrays inputs_of(const Shape& s, bool sinks) {
  Arrays inputs{
      normal({s.batch, s.heads, s.length, s.size}, 1),
      normal({s.batch, s.kv_heads, s.length, s.size}, 2),
      normal({s.batch, s.kv_heads, s.length, s.size}, 3)};
  if (sinks) {
    inputs.push_back(normal({s.heads}, 4));
  }
  return inputs;
}

Arrays outputs_and_gradients(
    const std::function<mx::array(const Arrays&)>& function,
    const Arrays& inputs) {
  mx::array weights = normal(function(inputs).shape(), 9);
  std::vector<int> all(inputs.size());
  std::iota(all.begin(), all.end(), 0);
  std::optional<mx::array> out;
  auto loss = [&](const Arrays& x) {
    out = function(x);
    return Arrays{mx::sum(mx::multiply(*out, weights))};
  };
  auto result = mx::value_and_grad(loss, all)(inputs).second;
  result.push_back(*out);
  mx::eval(result);
  return result;
}

// Relative, but where what is expected is about zero.
float error(const mx::array& a, const mx::array& b) {
  mx::array size =
      mx::maximum(mx::sqrt(mx::mean(mx::square(b))), mx::array(0.1f));
  return mx::divide(mx::sqrt(mx::mean(mx::square(mx::subtract(a, b)))), size)
      .item<float>();
}

void expect_as_plain(
    const Shape& shape,
    const TrainingAttention& options,
    bool sinks = false) {
  Arrays inputs = inputs_of(shape, sinks);
  auto plain = outputs_and_gradients(
      [&](const Arrays& x) {
        AttentionOptions plain{
            .scale = options.scale,
            .mask =
                {"", mask_of(options.segments, options.window, shape.length)},
            .softcap = options.softcap};
        if (sinks) {
          plain.sinks = x[3];
        }
        return plain_attention(x[0], x[1], x[2], plain);
      },
      inputs);
  for (const auto& selection : selections()) {
    auto ours = [&] {
      return outputs_and_gradients(
          [&](const Arrays& x) {
            TrainingAttention with = options;
            if (sinks) {
              with.sinks = x[3];
            }
            return training_attention(x[0], x[1], x[2], with, selection);
          },
          inputs);
    };
    Arrays first = ours();
    Arrays second = ours();
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_LT(error(first[i], plain[i]), 3e-6f)
          << i << " " << to_string(selection.instruction_set);
      EXPECT_TRUE(same_bits(first[i], second[i])) << i;
    }
  }
}

std::vector<RowSegment> some_segments() {
  // A text; a prompt with two answers; a text; padding.
  return {{0, 70}, {70, 90}, {90, 131, 1}, {131, 150, 1}, {150, 190}};
}

TEST(TrainingAttention, IsThePlainOneWithItsGradient) {
  for (int length : {1, 5, 64, 130}) {
    expect_as_plain({2, 4, 2, length, 16}, {.scale = 0.3f});
  }
  expect_as_plain({1, 3, 1, 97, 80}, {.scale = 0.1f});
}

TEST(TrainingAttention, SeesAWindow) {
  for (int window : {1, 20, 64, 200}) {
    expect_as_plain({1, 2, 1, 150, 32}, {.scale = 0.2f, .window = window});
  }
}

TEST(TrainingAttention, CapsScoresAndHasSinks) {
  expect_as_plain({2, 2, 1, 70, 16}, {.scale = 1, .softcap = 3});
  expect_as_plain({2, 4, 2, 70, 16}, {.scale = 0.4f}, true);
  expect_as_plain(
      {1, 4, 2, 90, 16},
      {.scale = 0.4f, .window = 30, .softcap = 5},
      true);
}

TEST(TrainingAttention, KeepsTheTextsOfAPackedRowApart) {
  for (int window : {0, 12, 33}) {
    expect_as_plain(
        {1, 4, 2, 200, 16},
        {.scale = 0.3f, .window = window, .segments = some_segments()});
  }
  expect_as_plain(
      {1, 2, 2, 200, 16},
      {.scale = 0.3f, .softcap = 4, .segments = some_segments()},
      true);
}

TEST(TrainingAttention, ASegmentIsComputedAsIfItWereAlone) {
  Selection selection = select_best();
  Arrays x = inputs_of({1, 4, 2, 200, 16}, false);
  mx::array packed = training_attention(
      x[0],
      x[1],
      x[2],
      {.scale = 0.3f, .segments = some_segments()},
      selection);
  auto part = [](const mx::array& a, int begin, int end) {
    return mx::slice(a, {0, 0, begin, 0}, {1, a.shape(1), end, a.shape(3)});
  };
  mx::array alone = training_attention(
      part(x[0], 150, 190),
      part(x[1], 150, 190),
      part(x[2], 150, 190),
      {.scale = 0.3f},
      selection);
  EXPECT_LT(relative_error(part(packed, 150, 190), alone), 1e-6f);
}

// As projections leave them: heads beside each other.
mx::array beside(const mx::array& x, mx::Dtype dtype) {
  mx::array y = mx::astype(mx::swapaxes(x, 1, 2), dtype);
  return mx::swapaxes(mx::contiguous(y), 1, 2);
}

TEST(TrainingAttention, TakesHalfPrecision) {
  struct Case {
    Shape shape;
    TrainingAttention options;
  };
  const Case cases[] = {
      {{1, 4, 2, 100, 32}, {.scale = 0.2f}},
      {{2, 4, 1, 256, 64}, {.scale = 0.12f}},
      {{1, 2, 2, 150, 128}, {.scale = 0.09f, .window = 40}},
      {{1, 4, 2, 200, 96}, {.scale = 0.1f, .segments = some_segments()}}};
  for (const auto& c : cases) {
    Arrays inputs = inputs_of(c.shape, false);
    auto run = [&](mx::Dtype dtype, bool deterministic) {
      Selection selection = select_best();
      selection.deterministic = deterministic;
      return outputs_and_gradients(
          [&](const Arrays& x) {
            return mx::astype(
                training_attention(
                    beside(x[0], dtype),
                    beside(x[1], dtype),
                    beside(x[2], dtype),
                    c.options,
                    selection),
                mx::float32);
          },
          inputs);
    };
    Arrays exact = run(mx::float32, true);
    for (auto dtype : {mx::float16, mx::bfloat16}) {
      for (bool deterministic : {false, true}) {
        Arrays rounded = run(dtype, deterministic);
        for (size_t i = 0; i < exact.size(); ++i) {
          EXPECT_LT(relative_error(rounded[i], exact[i]), 0.02f)
              << i << " " << c.shape.length << " " << deterministic;
        }
      }
      Arrays once = run(dtype, true);
      Arrays again = run(dtype, true);
      for (size_t i = 0; i < once.size(); ++i) {
        EXPECT_TRUE(same_bits(once[i], again[i])) << i;
      }
    }
  }
}

TEST(TrainingAttention, GradientsAreTheDerivatives) {
  for (const auto& selection : selections()) {
    auto function = [&](const Arrays& x) {
      return Arrays{training_attention(
          x[0],
          x[1],
          x[2],
          {.scale = 0.4f, .window = 5, .softcap = 4, .sinks = x[3]},
          selection)};
    };
    EXPECT_TRUE(check_gradient(function, inputs_of({1, 2, 1, 9, 16}, true)));
  }
}

// Scores of all pairs would take 64 MiB.
TEST(TrainingAttention, MemoryGrowsWithTokensNotWithTheirSquare) {
  for (const auto& selection : selections()) {
    auto peak = [&](int length) {
      Arrays inputs = inputs_of({1, 1, 1, length, 16}, false);
      mx::eval(inputs);
      reset_peak_memory();
      size_t before = memory_use().active;
      outputs_and_gradients(
          [&](const Arrays& x) {
            return training_attention(
                x[0],
                x[1],
                x[2],
                {.scale = 0.3f},
                selection);
          },
          inputs);
      return memory_use().peak - before;
    };
    size_t small = peak(2048);
    size_t large = peak(4096);
    EXPECT_LT(2 * large, 5 * small);
  }
}

TEST(TrainingAttention, RefusesWhatDoesNotFit) {
  Arrays x = inputs_of({1, 2, 1, 10, 16}, false);
  auto with = [&](std::vector<RowSegment> segments) {
    training_attention(x[0], x[1], x[2], {.segments = std::move(segments)});
  };
  EXPECT_ERROR(with({{0, 5}, {4, 9}}), "invalid_request", "segment 1");
  EXPECT_ERROR(with({{0, 11}}), "invalid_request", "tokens 0 to 11");
  EXPECT_ERROR(with({{3, 3}}), "invalid_request", "tokens 3 to 3");
  EXPECT_ERROR(with({{0, 5, 0}}), "invalid_request", "parent");
  EXPECT_ERROR(with({{0, 5}, {5, 9, -2}}), "invalid_request", "parent");
  EXPECT_ERROR(
      training_attention(x[0], x[1], x[2], {.sinks = mx::zeros({3})}),
      "internal",
      "sink");
  EXPECT_ERROR(
      training_attention(x[0], mx::zeros({1, 2, 9, 16}), x[2], {}),
      "internal",
      "fit");
}

}  // namespace
}  // namespace mlxx::kernels
