#pragma once

#include <map>

#include "mlxx/models/model.h"
#include "mlxx/nn/row_adapters.h"
#include "mlxx/train/trainable.h"

namespace mlxx::train {

// A low-rank change of some linear layers, or whole weights, written for tests
// apart from what users train.
class LowRankTrainable : public Trainable, private nn::RowAdapters {
 public:
  static constexpr int kRank = 4;

  // Changes every matrix of layers `first` and up.
  LowRankTrainable(
      const models::Model& model,
      int first,
      mx::Dtype dtype = mx::float32) {
    uint64_t seed = 1;
    auto random = [&](mx::Shape shape) {
      return mx::multiply(
          mx::random::normal(shape, dtype, mx::random::key(seed++)),
          mx::array(0.2f, dtype));
    };
    model.visit([&](const std::string& name, const Parameter& parameter) {
      constexpr std::string_view kLayers = "model.layers.";
      if (parameter.kind() != Parameter::Kind::matrix ||
          !name.starts_with(kLayers)) {
        return;
      }
      int layer = std::stoi(name.substr(kLayers.size()));
      if (layer < first) {
        return;
      }
      at_[&parameter] = values_.size();
      for (const char* part : {".lora_a", ".lora_b"}) {
        names_.push_back(name + part);
        layers_.push_back(layer);
      }
      values_.push_back(random({parameter.shape()[1], kRank}));
      values_.push_back(random({kRank, parameter.shape()[0]}));
    });
    mx::eval(values_);
  }

  const std::vector<std::string>& names() const override {
    return names_;
  }
  int layer(size_t index) const override {
    return layers_[index];
  }
  const std::vector<mx::array>& values() const override {
    return values_;
  }
  void set_values(std::vector<mx::array> values) override {
    values_ = std::move(values);
  }
  void with(
      std::span<const size_t> indices,
      std::span<const mx::array> values,
      const std::function<void()>& body) override {
    auto before = values_;
    for (size_t i = 0; i < indices.size(); ++i) {
      values_[indices[i]] = values[i];
    }
    try {
      nn::AdapterScope scope(this);
      body();
    } catch (...) {
      values_ = before;
      throw;
    }
    values_ = before;
  }
  void without(const std::function<void()>& body) override {
    body();
  }
  void begin_step(uint64_t, int64_t) override {}
  void set_training(bool) override {}

 private:
  std::optional<mx::array> product(
      const Parameter& weight,
      const std::optional<Parameter>&,
      const mx::array& x,
      const std::function<mx::array(bool)>& plain) const override {
    auto found = at_.find(&weight);
    if (found == at_.end()) {
      return std::nullopt;
    }
    mx::array change = mx::matmul(
        mx::matmul(x, values_[found->second]),
        values_[found->second + 1]);
    mx::array y = plain(true);
    return mx::add(y, mx::astype(change, y.dtype()));
  }

  std::vector<std::string> names_;
  std::vector<int> layers_;
  std::vector<mx::array> values_;
  std::map<const Parameter*, size_t> at_;
};

// The dense weights themselves.
class WeightTrainable : public Trainable {
 public:
  WeightTrainable(models::Model& model, int layers) {
    model.visit([&](const std::string& name, Parameter& parameter) {
      constexpr std::string_view kLayers = "model.layers.";
      names_.push_back(name);
      layers_.push_back(
          name.starts_with(kLayers) ? std::stoi(name.substr(kLayers.size()))
              : name.find("embed") != std::string::npos ? -1
                                                        : layers);
      parameters_.push_back(&parameter);
      values_.push_back(parameter.value());
    });
  }

  const std::vector<std::string>& names() const override {
    return names_;
  }
  int layer(size_t index) const override {
    return layers_[index];
  }
  const std::vector<mx::array>& values() const override {
    return values_;
  }
  void set_values(std::vector<mx::array> values) override {
    values_ = std::move(values);
    for (size_t i = 0; i < values_.size(); ++i) {
      parameters_[i]->set({values_[i], std::nullopt, std::nullopt});
    }
  }
  void with(
      std::span<const size_t> indices,
      std::span<const mx::array> values,
      const std::function<void()>& body) override {
    auto put = [&](auto value_of) {
      for (size_t i = 0; i < indices.size(); ++i) {
        parameters_[indices[i]]->set({value_of(i), std::nullopt, std::nullopt});
      }
    };
    put([&](size_t i) { return values[i]; });
    auto restore = [&] { put([&](size_t i) { return values_[indices[i]]; }); };
    try {
      body();
    } catch (...) {
      restore();
      throw;
    }
    restore();
  }
  void without(const std::function<void()>& body) override {
    body();
  }
  void begin_step(uint64_t, int64_t) override {}
  void set_training(bool) override {}

 private:
  std::vector<std::string> names_;
  std::vector<int> layers_;
  std::vector<mx::array> values_;
  std::vector<Parameter*> parameters_;
};

}  // namespace mlxx::train
