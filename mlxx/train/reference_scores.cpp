#include "mlxx/train/reference_scores.h"

#include <cmath>
#include <vector>

#include "mlxx/base/error.h"
#include "mlxx/core/host_values.h"
#include "mlxx/core/safetensors.h"
#include "mlxx/core/safetensors_writer.h"

namespace mlxx::train {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSums = "sums";
constexpr const char* kIdentity = "identity";

mx::array asked(
    const Objective& objective,
    const Differentiator& differentiator,
    const data::Batch& batch,
    bool reference) {
  mx::array sums =
      objective.answer_sums(batch, differentiator.scores(batch, reference));
  mx::eval(sums);
  return sums;
}

class LiveReference : public ReferenceScores {
 public:
  LiveReference(
      const Objective& objective,
      const Differentiator& differentiator)
      : objective_(objective), differentiator_(differentiator) {}

  mx::array of(const data::Batch& batch) const override {
    return asked(objective_, differentiator_, batch, true);
  }

 private:
  const Objective& objective_;
  const Differentiator& differentiator_;
};

int64_t sample_of(const data::Batch& batch, const data::Batch::Pair& pair) {
  return batch.segments.empty() ? batch.samples.at(pair.chosen)
                                : batch.segments.at(pair.chosen).sample;
}

class KeptReference : public ReferenceScores {
 public:
  // [samples, 2], NaN where there is none.
  explicit KeptReference(std::vector<float> sums) : sums_(std::move(sums)) {}

  mx::array of(const data::Batch& batch) const override {
    std::vector<float> sums;
    for (const auto& pair : batch.pairs) {
      const auto sample = static_cast<size_t>(sample_of(batch, pair));
      if (2 * sample + 1 >= sums_.size() || std::isnan(sums_[2 * sample])) {
        fail(
            ErrorKind::bad_file,
            "reference scores",
            "sample {} has none",
            sample);
      }
      sums.push_back(sums_[2 * sample]);
      sums.push_back(sums_[2 * sample + 1]);
    }
    return mx::array(
        sums.begin(),
        {static_cast<int>(batch.pairs.size()), 2},
        mx::float32);
  }

 private:
  std::vector<float> sums_;
};

std::vector<float> read_sums(
    const fs::path& file,
    const std::string& identity) {
  if (!fs::exists(file)) {
    return {};
  }
  const SafetensorsFile tensors(file);
  const auto* entry = tensors.find(kSums);
  auto found = tensors.metadata().find(kIdentity);
  if (!entry || found == tensors.metadata().end() ||
      found->second != identity) {
    return {};
  }
  const mx::array array = tensors.load(*entry);
  const HostValues<float> values(array, file.string());
  return {values.span().begin(), values.span().end()};
}

}  // namespace

std::unique_ptr<ReferenceScores> live_reference(
    const Objective& objective,
    const Differentiator& differentiator) {
  return std::make_unique<LiveReference>(objective, differentiator);
}

std::unique_ptr<ReferenceScores> kept_reference(
    const Objective& objective,
    const Differentiator& differentiator,
    const data::TrainingData& data,
    const fs::path& file,
    const std::string& identity,
    bool untrained,
    const std::function<void(int64_t done, int64_t all)>& progress) {
  std::vector<float> sums = read_sums(file, identity);
  if (!sums.empty()) {
    return std::make_unique<KeptReference>(std::move(sums));
  }
  const int64_t all = data.batches_per_epoch();
  for (int64_t index = 0; index < all; ++index) {
    const data::Batch batch = data.batch(index);
    const mx::array asked_sums =
        asked(objective, differentiator, batch, !untrained);
    const HostValues<float> values(asked_sums, "reference scores");
    for (size_t i = 0; i < batch.pairs.size(); ++i) {
      const auto sample = static_cast<size_t>(sample_of(batch, batch.pairs[i]));
      if (sums.size() < 2 * sample + 2) {
        sums.resize(2 * sample + 2, std::nanf(""));
      }
      sums[2 * sample] = values.span()[2 * i];
      sums[2 * sample + 1] = values.span()[2 * i + 1];
    }
    if (progress) {
      progress(index + 1, all);
    }
  }
  write_safetensors(
      file,
      SafetensorsArrays{
          {kSums,
           mx::array(
               sums.begin(),
               {static_cast<int>(sums.size() / 2), 2},
               mx::float32)}},
      {{kIdentity, identity}});
  return std::make_unique<KeptReference>(std::move(sums));
}

}  // namespace mlxx::train
