#include "mlxx/data/epoch_plan.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "mlxx/data/shuffled_order.h"

namespace mlxx::data {
namespace {

using Batches = std::vector<std::vector<uint32_t>>;

Batches batches_of(
    const std::vector<int32_t>& lengths,
    const EpochPlan::Options& options,
    int64_t epoch) {
  EpochPlan plan(lengths, options, epoch);
  Batches out;
  for (int64_t i = 0; i < plan.batches(); ++i) {
    auto samples = plan.samples(i);
    out.emplace_back(samples.begin(), samples.end());
  }
  return out;
}

std::vector<int32_t> made_lengths(uint32_t count) {
  ShuffleSource source(7, count);
  std::vector<int32_t> lengths;
  for (uint32_t i = 0; i < count; ++i) {
    lengths.push_back(1 + static_cast<int32_t>(source.below(100)));
  }
  return lengths;
}

void expect_each_once(const Batches& batches, size_t count) {
  std::vector<uint32_t> all;
  for (const auto& batch : batches) {
    all.insert(all.end(), batch.begin(), batch.end());
  }
  std::ranges::sort(all);
  std::vector<uint32_t> expected(count);
  std::iota(expected.begin(), expected.end(), 0u);
  EXPECT_EQ(all, expected);
}

TEST(EpochPlan, HasEverySampleOnceWhateverTheSizes) {
  for (uint32_t count : {1u, 2u, 3u, 4u, 5u, 127u, 128u, 129u, 1000u}) {
    auto lengths = made_lengths(count);
    for (int batch_size : {1, 2, 4, 7}) {
      for (bool shuffle : {false, true}) {
        for (int64_t row : {0, 100, 256}) {
          EpochPlan::Options options{
              .batch_size = batch_size,
              .shuffle = shuffle,
              .seed = 3,
              .row_tokens = row};
          auto first = batches_of(lengths, options, 0);
          auto later = batches_of(lengths, options, 5);
          expect_each_once(first, count);
          expect_each_once(later, count);
          EXPECT_EQ(first.size(), later.size());
          for (const auto& batch : first) {
            int64_t tokens = 0;
            for (uint32_t sample : batch) {
              tokens += lengths[sample];
            }
            EXPECT_TRUE(
                row > 0 ? tokens <= row
                        : batch.size() <= static_cast<size_t>(batch_size));
          }
          if (row == 0) {
            auto size = static_cast<size_t>(batch_size);
            EXPECT_EQ(first.size(), (count + size - 1) / size);
          }
        }
      }
    }
  }
}

TEST(EpochPlan, IsAFunctionOfSeedAndEpoch) {
  auto lengths = made_lengths(300);
  for (int64_t row : {0, 256}) {
    EpochPlan::Options options{
        .batch_size = 4,
        .shuffle = true,
        .seed = 1,
        .row_tokens = row};
    auto epoch0 = batches_of(lengths, options, 0);
    EXPECT_EQ(batches_of(lengths, options, 0), epoch0);
    EXPECT_NE(batches_of(lengths, options, 1), epoch0);
    options.seed = 2;
    EXPECT_NE(batches_of(lengths, options, 0), epoch0);
  }
  // The same on every machine.
  std::vector<int32_t> equal(5, 9);
  EpochPlan::Options one{
      .batch_size = 2,
      .shuffle = true,
      .seed = 42,
      .row_tokens = 0};
  EXPECT_EQ(batches_of(equal, one, 0), (Batches{{4, 1}, {3}, {2, 0}}));
}

TEST(EpochPlan, PutsSamplesOfLikeLengthTogether) {
  auto lengths = made_lengths(1000);
  EpochPlan::Options options{
      .batch_size = 8,
      .shuffle = true,
      .seed = 1,
      .row_tokens = 0};
  auto padding = [&](const Batches& batches) {
    int64_t padded = 0;
    for (const auto& batch : batches) {
      int32_t longest = 0;
      for (uint32_t sample : batch) {
        longest = std::max(longest, lengths[sample]);
      }
      for (uint32_t sample : batch) {
        padded += longest - lengths[sample];
      }
    }
    return padded;
  };
  int64_t shuffled = padding(batches_of(lengths, options, 0));
  options.shuffle = false;
  int64_t in_order = padding(batches_of(lengths, options, 0));
  EXPECT_LT(shuffled * 8, in_order);
}

TEST(EpochPlan, PacksRowsNearlyFull) {
  auto lengths = made_lengths(1000);
  EpochPlan::Options options{
      .batch_size = 1,
      .shuffle = true,
      .seed = 1,
      .row_tokens = 512};
  auto rows = batches_of(lengths, options, 0);
  int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  EXPECT_LE(static_cast<int64_t>(rows.size()), tokens / 512 + 2);
}

// Samples that share a row in one epoch mostly do not in the next.
TEST(EpochPlan, PacksOthersTogetherInEveryEpoch) {
  auto lengths = made_lengths(400);
  // All different: no two of one length to change places.
  std::vector<int32_t> apart(400);
  std::iota(apart.begin(), apart.end(), 40);
  for (const auto& all : {lengths, apart}) {
    EpochPlan::Options options{
        .batch_size = 1,
        .shuffle = true,
        .seed = 5,
        .row_tokens = 1024};
    auto together = [&](int64_t epoch) {
      std::set<std::pair<uint32_t, uint32_t>> pairs;
      for (auto row : batches_of(all, options, epoch)) {
        std::ranges::sort(row);
        for (size_t i = 0; i < row.size(); ++i) {
          for (size_t j = 0; j < i; ++j) {
            pairs.emplace(row[j], row[i]);
          }
        }
      }
      return pairs;
    };
    auto first = together(0);
    for (int64_t epoch : {1, 2, 9}) {
      auto now = together(epoch);
      auto same = std::ranges::count_if(now, [&](const auto& pair) {
        return first.contains(pair);
      });
      EXPECT_LT(static_cast<size_t>(same) * 3, now.size()) << epoch;
      EXPECT_EQ(
          batches_of(all, options, epoch).size(),
          batches_of(all, options, 0).size());
      EXPECT_EQ(together(epoch), now);
    }
  }
}

TEST(EpochPlan, WithoutShufflingKeepsTheFilesOrder) {
  EpochPlan::Options options{
      .batch_size = 2,
      .shuffle = false,
      .seed = 0,
      .row_tokens = 0};
  EXPECT_EQ(
      batches_of({9, 1, 5, 2, 7}, options, 3),
      (Batches{{0, 1}, {2, 3}, {4}}));
  options.row_tokens = 10;
  EXPECT_EQ(
      batches_of({9, 1, 5, 2, 7}, options, 3),
      (Batches{{0, 1}, {2, 3}, {4}}));
}

}  // namespace
}  // namespace mlxx::data
