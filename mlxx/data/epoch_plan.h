#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mlxx::data {

// Which samples each batch of an epoch has.
class EpochPlan {
 public:
  struct Options {
    int batch_size = 1;
    bool shuffle = true;
    uint64_t seed = 0;
    // Of packed rows: tokens that fit into one; 0: batches of batch_size.
    int64_t row_tokens = 0;
  };

  // Batches of `batch_size` samples, the last one possibly smaller. Shuffled,
  // they are other ones in every epoch: samples of like length come together,
  // out of a random part of the data, so that there is little padding.
  // Packed, a batch is a row as full as can be; other samples come together in
  // every epoch, in as many rows. Without shuffling: in the file's order.
  // `lengths` are the samples' tokens.
  EpochPlan(
      std::span<const int32_t> lengths,
      const Options& options,
      int64_t epoch);

  int64_t batches() const {
    return static_cast<int64_t>(ends_.size());
  }
  std::span<const uint32_t> samples(int64_t batch) const;

 private:
  void add_batch(std::span<const uint32_t> samples);
  void in_order(std::span<const int32_t> lengths, const Options& options);
  void
  mix(std::span<const int32_t> lengths, const Options& options, int64_t epoch);
  void
  pack(std::span<const int32_t> lengths, const Options& options, int64_t epoch);

  std::vector<uint32_t> samples_;
  std::vector<uint32_t> ends_;  // of batches, in samples_
};

}  // namespace mlxx::data
