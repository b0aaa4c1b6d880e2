#pragma once

#include <memory>
#include <unordered_map>

#include "mlxx/adapters/adapter_file.h"
#include "mlxx/nn/row_adapters.h"
#include "mlxx/train/lora_layer.h"
#include "mlxx/train/trainable.h"

namespace mlxx::train {

// Low-rank changes of a model's layers, to be trained: LoRA (arXiv 2106.09685),
// of quantized weights too (QLoRA), or DoRA (arXiv 2402.09353). The model's own
// weights stay as they are. Names, shapes, order and initial numbers are
// mlx-lm's for the same seed: a uniform in +-1/sqrt(in), b zero. float32.
class LoraAdapters : public Trainable, private nn::RowAdapters {
 public:
  // Errors as plan_lora().
  LoraAdapters(
      std::shared_ptr<const models::Model> model,
      const LoraOptions& options);

  const std::vector<std::string>& names() const override {
    return names_;
  }
  int layer(size_t index) const override;
  const std::vector<mx::array>& values() const override {
    return values_;
  }
  // invalid_request for another number of values, shape or dtype.
  void set_values(std::vector<mx::array> values) override;
  void with(
      std::span<const size_t> indices,
      std::span<const mx::array> values,
      const std::function<void()>& body) override;
  void without(const std::function<void()>& body) override;
  void begin_step(uint64_t seed, int64_t step) override;
  void set_training(bool training) override {
    training_ = training;
  }
  float learning_rate_ratio(size_t index) const override;

  const LoraPlan& plan() const {
    return plan_;
  }
  const LoraOptions& options() const {
    return options_;
  }
  // What the values say, as files have it (adapters/write_adapter.h).
  std::vector<adapters::LowRank> low_rank() const;

 private:
  // Where the numbers of a module are, and which of its weights asked.
  struct Place {
    size_t module;
    OutputRange range;
    std::optional<mx::array> squared;  // of a packed weight, for DoRA
  };

  std::optional<mx::array> product(
      const Parameter& weight,
      const std::optional<Parameter>& bias,
      const mx::array& x,
      const std::function<mx::array(bool with_bias)>& plain) const override;
  std::optional<mx::array> rows(
      const Parameter& table,
      const mx::array& ids,
      const std::function<mx::array()>& plain) const override;
  std::optional<mx::array> head(
      const Parameter& table,
      const mx::array& x,
      const std::function<mx::array()>& plain) const override;
  std::optional<mx::array> expert_product(
      const Parameter& weight,
      const mx::array& x,
      const mx::array& indices,
      bool sorted,
      const std::function<mx::array()>& plain) const override;
  bool changes(const Parameter& experts) const override {
    return places_.contains(&experts);
  }

  void make_values();
  const Place* place_of(const Parameter& weight) const;
  LoraValues values_of(size_t module) const;
  Dropout dropout_of(size_t module) const;
  // Of one module.
  size_t parts() const {
    return options_.dora ? 3 : 2;
  }

  std::shared_ptr<const models::Model> model_;
  LoraOptions options_;
  LoraPlan plan_;
  std::unordered_map<const Parameter*, Place> places_;
  std::vector<std::string> names_;
  std::vector<mx::array> values_;
  std::vector<mx::array> current_;  // what with() put in their place
  bool training_ = true;
  uint64_t seed_ = 0;
  int64_t step_ = 0;
};

}  // namespace mlxx::train
