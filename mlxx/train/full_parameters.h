#pragma once

#include <memory>

#include "mlxx/models/model.h"
#include "mlxx/train/trainable.h"

namespace mlxx::train {

struct FullOptions {
  // The last so many decoder layers, as mlx-lm has it (mlx_lm/lora.py); below
  // 1: all of them.
  int num_layers = -1;
  // Also what is outside of the decoder layers, which mlx-lm leaves frozen:
  // embeddings, the last norm, the head. Only with all layers.
  bool everything = false;
};

// The weights of a model themselves, in their own dtypes. Every parameter of
// the layers is trained, norms and biases too.
class FullParameters : public Trainable {
 public:
  // `model`: of models::load_trainable_model(). Errors: invalid_request for
  // more layers than there are, or for weights that are not dense.
  FullParameters(
      std::shared_ptr<models::Model> model,
      const FullOptions& options);

  const std::vector<std::string>& names() const override {
    return names_;
  }
  int layer(size_t index) const override {
    return layers_.at(index);
  }
  const std::vector<mx::array>& values() const override {
    return values_;
  }
  void set_values(std::vector<mx::array> values) override;
  void with(
      std::span<const size_t> indices,
      std::span<const mx::array> values,
      const std::function<void()>& body) override;
  // unsupported: the weights of before are not kept.
  void without(const std::function<void()>& body) override;
  void begin_step(uint64_t, int64_t) override {}
  void set_training(bool) override {}

  int num_layers() const {
    return num_layers_;
  }

 private:
  std::shared_ptr<models::Model> model_;
  int num_layers_;
  std::vector<std::string> names_;
  std::vector<int> layers_;
  std::vector<mx::array> values_;
  std::vector<Parameter*> parameters_;
};

}  // namespace mlxx::train
