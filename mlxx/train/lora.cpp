#include "mlxx/train/lora.h"

#include <cmath>

#include "mlxx/adapters/linear_change.h"
#include "mlxx/base/error.h"
#include "mlxx/train/replaced_values.h"

namespace mlxx::train {
namespace {

using adapters::LayerKind;

// As MLX's state of random numbers: each call takes the next key.
class KeySequence {
 public:
  explicit KeySequence(uint64_t seed) : state_(mx::random::key(seed)) {}

  mx::array next() {
    auto [state, key] = mx::random::split(state_);
    state_ = state;
    return key;
  }

 private:
  mx::array state_;
};

mx::array initial_a(const LoraModule& module, KeySequence& keys) {
  const auto& layer = module.layer;
  // mlx-lm's layers begin with a base of their own, which takes a key.
  keys.next();
  auto bound = static_cast<float>(1 / std::sqrt(double(layer.inputs)));
  mx::Shape shape = layer.kind == LayerKind::experts
      ? mx::Shape{layer.experts, module.rank, layer.inputs}
      : mx::Shape{layer.inputs, module.rank};
  return mx::random::uniform(
      mx::array(-bound),
      mx::array(bound),
      shape,
      mx::float32,
      keys.next());
}

mx::array initial_b(const LoraModule& module) {
  const auto& layer = module.layer;
  return mx::zeros(
      layer.kind == LayerKind::experts
          ? mx::Shape{layer.experts, layer.outputs, module.rank}
          : mx::Shape{module.rank, layer.outputs},
      mx::float32);
}

// Lengths of the rows of a layer's weights.
mx::array initial_magnitude(const LoraModule& module) {
  std::vector<mx::array> parts;
  for (const Parameter* weight : module.layer.weights) {
    mx::array dense = adapters::dense_weight(*weight);
    parts.push_back(mx::linalg::norm(mx::astype(dense, mx::float32), {1}));
    mx::eval(parts.back());
  }
  return parts.size() == 1 ? parts.front() : mx::concatenate(parts, 0);
}

// What is put back when a scope ends, also by an exception.
class Restored {
 public:
  explicit Restored(std::vector<mx::array>& values)
      : values_(values), before_(values) {}
  ~Restored() {
    values_ = std::move(before_);
  }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

 private:
  std::vector<mx::array>& values_;
  std::vector<mx::array> before_;
};

}  // namespace

LoraAdapters::LoraAdapters(
    std::shared_ptr<const models::Model> model,
    const LoraOptions& options)
    : model_(std::move(model)),
      options_(options),
      plan_(plan_lora(*model_, options)) {
  for (size_t i = 0; i < plan_.modules.size(); ++i) {
    const auto& layer = plan_.modules[i].layer;
    int begin = 0;
    for (const Parameter* weight : layer.weights) {
      // Of experts and embeddings there is one.
      int end = layer.weights.size() == 1 ? layer.outputs
                                          : begin + weight->shape()[0];
      Place place{i, {begin, end}, std::nullopt};
      if (options_.dora && weight->packed()) {
        place.squared = squared_lengths(*weight);
      }
      places_.emplace(weight, std::move(place));
      begin = end;
    }
    for (const char* part : {"m", "lora_a", "lora_b"}) {
      if (options_.dora || part[0] != 'm') {
        names_.push_back(fmt::format("{}.{}", layer.name, part));
      }
    }
  }
  make_values();
}

void LoraAdapters::make_values() {
  KeySequence keys(options_.seed);
  std::vector<std::optional<mx::array>> all(names_.size());
  for (size_t module : plan_.made) {
    const LoraModule& one = plan_.modules[module];
    size_t at = module * parts();
    if (options_.dora) {
      all[at++] = initial_magnitude(one);
    }
    all[at] = initial_a(one, keys);
    all[at + 1] = initial_b(one);
  }
  for (auto& value : all) {
    values_.push_back(std::move(*value));
  }
  mx::eval(values_);
  current_ = values_;
}

int LoraAdapters::layer(size_t index) const {
  return plan_.modules.at(index / parts()).layer.layer;
}

float LoraAdapters::learning_rate_ratio(size_t index) const {
  bool is_b = index % parts() == parts() - 1;
  return is_b ? static_cast<float>(options_.learning_rate_ratio) : 1.0f;
}

void LoraAdapters::set_values(std::vector<mx::array> values) {
  check_replaced("adapter", *this, values);
  values_ = std::move(values);
  current_ = values_;
}

void LoraAdapters::with(
    std::span<const size_t> indices,
    std::span<const mx::array> values,
    const std::function<void()>& body) {
  if (indices.size() != values.size()) {
    fail(ErrorKind::internal, "adapter", "values do not match their indices");
  }
  Restored restored(current_);
  for (size_t i = 0; i < indices.size(); ++i) {
    current_.at(indices[i]) = values[i];
  }
  nn::AdapterScope scope(this);
  body();
}

void LoraAdapters::without(const std::function<void()>& body) {
  nn::AdapterScope scope(nullptr);
  body();
}

void LoraAdapters::begin_step(uint64_t seed, int64_t step) {
  seed_ = seed;
  step_ = step;
}

std::vector<adapters::LowRank> LoraAdapters::low_rank() const {
  std::vector<adapters::LowRank> all;
  for (size_t i = 0; i < plan_.modules.size(); ++i) {
    size_t at = i * parts();
    std::optional<mx::array> magnitude;
    if (options_.dora) {
      magnitude = values_[at++];
    }
    all.push_back(
        {plan_.modules[i].layer.name,
         values_[at],
         values_[at + 1],
         plan_.modules[i].scale,
         magnitude});
  }
  return all;
}

const LoraAdapters::Place* LoraAdapters::place_of(
    const Parameter& weight) const {
  auto found = places_.find(&weight);
  return found == places_.end() ? nullptr : &found->second;
}

LoraValues LoraAdapters::values_of(size_t module) const {
  size_t at = module * parts();
  return options_.dora
      ? LoraValues{current_[at + 1], current_[at + 2], &current_[at]}
      : LoraValues{current_[at], current_[at + 1], nullptr};
}

Dropout LoraAdapters::dropout_of(size_t module) const {
  return {training_ ? options_.dropout : 0, seed_, step_, module};
}

std::optional<mx::array> LoraAdapters::product(
    const Parameter& weight,
    const std::optional<Parameter>& bias,
    const mx::array& x,
    const std::function<mx::array(bool)>& plain) const {
  const Place* place = place_of(weight);
  if (!place) {
    return std::nullopt;
  }
  return lora_product(
      plan_.modules[place->module],
      values_of(place->module),
      place->range,
      weight,
      bias,
      place->squared,
      x,
      dropout_of(place->module),
      plain);
}

std::optional<mx::array> LoraAdapters::rows(
    const Parameter& table,
    const mx::array& ids,
    const std::function<mx::array()>& plain) const {
  const Place* place = place_of(table);
  if (!place) {
    return std::nullopt;
  }
  return lora_rows(
      plan_.modules[place->module],
      values_of(place->module),
      ids,
      dropout_of(place->module),
      plain);
}

std::optional<mx::array> LoraAdapters::head(
    const Parameter& table,
    const mx::array& x,
    const std::function<mx::array()>& plain) const {
  const Place* place = place_of(table);
  if (!place) {
    return std::nullopt;
  }
  return lora_head(
      plan_.modules[place->module],
      values_of(place->module),
      table,
      place->squared,
      x,
      dropout_of(place->module),
      plain);
}

std::optional<mx::array> LoraAdapters::expert_product(
    const Parameter& weight,
    const mx::array& x,
    const mx::array& indices,
    bool sorted,
    const std::function<mx::array()>& plain) const {
  const Place* place = place_of(weight);
  if (!place) {
    return std::nullopt;
  }
  return lora_expert_product(
      plan_.modules[place->module],
      values_of(place->module),
      x,
      indices,
      sorted,
      dropout_of(place->module),
      plain);
}

}  // namespace mlxx::train
