#include "mlxx/kernels/attention/block_attention.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

struct Form {
  int size;
  KvType type;
  int queries;
};

// Keys, values and queries of one head; blocks as a cache holds them.
class Head {
 public:
  Head(const Form& form, const BlockAttention& kernels, int tokens)
      : size_(form.size) {
    std::mt19937 random(size_ + tokens);
    std::normal_distribution<float> normal;
    auto fill = [&](std::vector<float>& v, size_t n) {
      v.resize(n);
      for (float& x : v) {
        x = normal(random);
      }
    };
    fill(queries, form.queries * size_);
    fill(keys, tokens * size_);
    fill(values, tokens * size_);
    size_t bytes = form.type == KvType::float16 ? 2 : 4;
    for (int b = 0; b < kSplitBlocks; ++b) {
      key_blocks[b].resize(kBlockLength * size_ * bytes);
      value_blocks[b].resize(kBlockLength * size_ * bytes);
    }
    for (int t = 0; t < tokens; ++t) {
      kernels.store_key(
          &keys[t * size_],
          size_,
          t % kBlockLength,
          form.type,
          key_blocks[t / kBlockLength].data());
      kernels.store_value(
          &values[t * size_],
          size_,
          t % kBlockLength,
          form.type,
          value_blocks[t / kBlockLength].data());
    }
  }

  KvSplit split() const {
    return {
        {key_blocks[0].data(), key_blocks[1].data()},
        {value_blocks[0].data(), value_blocks[1].data()},
        {key_blocks[0].data(), nullptr}};
  }
  // In double precision.
  std::vector<double> expected(int query, int begin, int end) const {
    std::vector<double> weights;
    double total = 0;
    for (int t = begin; t < end; ++t) {
      double score = 0;
      for (int d = 0; d < size_; ++d) {
        score += double{queries[query * size_ + d]} * keys[t * size_ + d];
      }
      weights.push_back(std::exp(score));
      total += weights.back();
    }
    std::vector<double> out(size_);
    for (int t = begin; t < end; ++t) {
      for (int d = 0; d < size_; ++d) {
        out[d] += weights[t - begin] / total * values[t * size_ + d];
      }
    }
    return out;
  }

  std::vector<float> queries;
  std::vector<float> keys;
  std::vector<float> values;

 private:
  int size_;
  std::vector<char> key_blocks[kSplitBlocks];
  std::vector<char> value_blocks[kSplitBlocks];
};

struct Visible {
  std::vector<int32_t> begin;
  std::vector<int32_t> end;
};

std::vector<SplitState> attend(
    const BlockAttention& kernels,
    const Form& form,
    const Head& head,
    const Visible& seen,
    int first,
    int count,
    std::vector<float>& outs) {
  outs.assign(count * form.size, 0);
  std::vector<const float*> rows;
  std::vector<SplitState> states;
  for (int i = 0; i < count; ++i) {
    rows.push_back(head.queries.data() + (first + i) * form.size);
    states.push_back({0, 0, outs.data() + i * form.size});
  }
  kernels.attend(
      {head.split(),
       form.type,
       form.size,
       count,
       rows.data(),
       seen.begin.data() + first,
       seen.end.data() + first},
      states.data());
  return states;
}

TEST(BlockAttention, AgreesWithDoublePrecisionAndKeepsEachQuerysBits) {
  for (InstructionSet set : available_instruction_sets()) {
    const BlockAttention& kernels = block_attention(set);
    for (auto type : {KvType::float16, KvType::float32}) {
      for (int size : {16, 64, 80, 128}) {
        Form form{size, type, 13};
        constexpr int kTokens = 100;
        Head head(form, kernels, kTokens);
        Visible seen;
        for (int i = 0; i < form.queries; ++i) {
          seen.begin.push_back(i % 3 == 0 ? 7 * i : 0);
          seen.end.push_back(kTokens - i);
        }
        std::vector<float> outs;
        auto states = attend(kernels, form, head, seen, 0, form.queries, outs);
        for (int i = 0; i < form.queries; ++i) {
          std::vector<float> alone;
          auto state = attend(kernels, form, head, seen, i, 1, alone)[0];
          EXPECT_EQ(state.sum, states[i].sum);
          EXPECT_EQ(state.most, states[i].most);
          for (int d = 0; d < size; ++d) {
            EXPECT_EQ(alone[d], outs[i * size + d]);
          }
          kernels.finish(states[i], size);
          auto expected = head.expected(i, seen.begin[i], seen.end[i]);
          double difference = 0;
          double norm = 0;
          for (int d = 0; d < size; ++d) {
            difference += std::pow(states[i].out[d] - expected[d], 2);
            norm += expected[d] * expected[d];
          }
          EXPECT_LT(
              std::sqrt(difference / norm),
              type == KvType::float32 ? 1e-5 : 1e-2)
              << to_string(set) << " size " << size << " query " << i;
        }
      }
    }
  }
}

TEST(BlockAttention, JoinsSplitsAsIfTheyWereOne) {
  for (InstructionSet set : available_instruction_sets()) {
    const BlockAttention& kernels = block_attention(set);
    Form form{64, KvType::float32, 1};
    Head head(form, kernels, 128);
    std::vector<float> joined(64, 0.0f);
    SplitState state{kNoScore, 0, joined.data()};
    for (auto [begin, end] : {std::pair{0, 50}, {50, 51}, {51, 128}}) {
      std::vector<float> part;
      auto later = attend(kernels, form, head, {{begin}, {end}}, 0, 1, part)[0];
      kernels.join(later, 64, state);
    }
    kernels.finish(state, 64);
    auto expected = head.expected(0, 0, 128);
    for (int d = 0; d < 64; ++d) {
      EXPECT_NEAR(joined[d], expected[d], 2e-6) << to_string(set);
    }
  }
}

TEST(BlockAttention, RoundsToTheNearestHalfTiesToEven) {
  const std::vector<std::pair<float, uint16_t>> cases{
      {0.0f, 0x0000},
      {-0.0f, 0x8000},
      {1.0f, 0x3c00},
      {1.0f / 3, 0x3555},
      {65504.0f, 0x7bff},
      {65519.0f, 0x7bff},
      {6.1e-5f, 0x03ff},
      {5.9e-8f, 0x0001},
      {-2.98e-8f, 0x8000},
      {1e-9f, 0x0000},
      {2049.0f, 0x6800},
      {2051.0f, 0x6802},
      {-1234.567f, 0xe4d3},
      {0.1f, 0x2e66},
      {3.14159f, 0x4248},
      {1e-4f, 0x068e}};
  std::vector<float> numbers;
  for (auto [number, half] : cases) {
    numbers.push_back(number);
  }
  for (InstructionSet set : available_instruction_sets()) {
    std::vector<uint16_t> halves(16);
    block_attention(set)
        .store_value(numbers.data(), 16, 0, KvType::float16, halves.data());
    for (int i = 0; i < 16; ++i) {
      EXPECT_EQ(halves[i], cases[i].second)
          << numbers[i] << " " << to_string(set);
    }
    // Larger than the type: the largest number, not infinity.
    std::vector<float> large(16, 1e6f);
    block_attention(set)
        .store_value(large.data(), 16, 0, KvType::float16, halves.data());
    EXPECT_EQ(halves[3], 0x7bff);
  }
}

}  // namespace
}  // namespace mlxx::kernels
