#include "mlxx/train/full_parameters.h"

#include "mlxx/adapters/adaptable_modules.h"
#include "mlxx/base/error.h"
#include "mlxx/train/replaced_values.h"

namespace mlxx::train {
namespace {

constexpr const char* kPlace = "full fine-tuning";

// What some parameters held before, put back at the end.
class SwappedWeights {
 public:
  SwappedWeights() = default;
  SwappedWeights(const SwappedWeights&) = delete;
  SwappedWeights& operator=(const SwappedWeights&) = delete;
  ~SwappedWeights() {
    for (auto last = before_.rbegin(); last != before_.rend(); ++last) {
      last->first->set({last->second, std::nullopt, std::nullopt});
    }
  }

  void swap(Parameter& parameter, const mx::array& value) {
    before_.emplace_back(&parameter, parameter.value());
    parameter.set({value, std::nullopt, std::nullopt});
  }

 private:
  std::vector<std::pair<Parameter*, mx::array>> before_;
};

}  // namespace

FullParameters::FullParameters(
    std::shared_ptr<models::Model> model,
    const FullOptions& options)
    : model_(std::move(model)), num_layers_(options.num_layers) {
  int layers = model_->summary().layers;
  if (num_layers_ > layers) {
    fail(
        ErrorKind::invalid_request,
        "number of layers",
        "is {}, the model has {}",
        num_layers_,
        layers);
  }
  if (options.everything && num_layers_ >= 1 && num_layers_ < layers) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "of embeddings and head goes with all layers, not with the last {}",
        num_layers_);
  }
  int first = num_layers_ < 1 ? 0 : layers - num_layers_;
  bool behind = false;
  model_->visit(
      ParameterVisitor([&](const std::string& name, Parameter& parameter) {
        auto number = adapters::layer_of(name);
        behind = behind || number.has_value();
        int layer = number.value_or(behind ? layers : -1);
        bool within = number && layer >= first;
        if (!within && !options.everything) {
          return;
        }
        if (parameter.packed() || parameter.quantization()) {
          fail(
              ErrorKind::invalid_request,
              kPlace,
              "'{}' is not a dense weight",
              name);
        }
        names_.push_back(name);
        layers_.push_back(layer);
        values_.push_back(parameter.value());
        parameters_.push_back(&parameter);
      }));
  if (names_.empty()) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "the model has no layers to train");
  }
}

void FullParameters::set_values(std::vector<mx::array> values) {
  check_replaced(kPlace, *this, values);
  values_ = std::move(values);
  for (size_t i = 0; i < values_.size(); ++i) {
    parameters_[i]->set({values_[i], std::nullopt, std::nullopt});
  }
}

void FullParameters::with(
    std::span<const size_t> indices,
    std::span<const mx::array> values,
    const std::function<void()>& body) {
  if (indices.size() != values.size()) {
    fail(ErrorKind::internal, kPlace, "values do not match their indices");
  }
  SwappedWeights swapped;
  for (size_t i = 0; i < indices.size(); ++i) {
    swapped.swap(*parameters_.at(indices[i]), values[i]);
  }
  body();
}

void FullParameters::without(const std::function<void()>&) {
  fail(
      ErrorKind::unsupported,
      kPlace,
      "keeps no weights from before; adapters do");
}

}  // namespace mlxx::train
