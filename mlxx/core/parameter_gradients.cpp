#include "mlxx/core/parameter_gradients.h"

#include "mlxx/base/error.h"
#include "mlxx/core/autograd.h"
#include "mlxx/core/dtype.h"
#include "mlxx/core/fault_point.h"

namespace mlxx {
namespace {

constexpr std::string_view kPlace = "parameter_gradients";

struct Trained {
  std::string name;
  Parameter* parameter;
};

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  fail(ErrorKind::invalid_request, kPlace, text, std::forward<Args>(args)...);
}

void check_trainable(const std::string& name, const Parameter& parameter) {
  if (!parameter.is_set()) {
    refuse("parameter '{}' was never set", name);
  }
  if (parameter.packed()) {
    refuse(
        "parameter '{}' is packed for a kernel; freeze it or load its plain "
        "form",
        name);
  }
  if (parameter.quantization()) {
    refuse(
        "parameter '{}' is quantized to {} bits; freeze it or dequantize it",
        name,
        parameter.quantization()->bits);
  }
  if (!mx::issubdtype(parameter.value().dtype(), mx::inexact)) {
    refuse(
        "parameter '{}' is {}, and only floating arrays have gradients; "
        "freeze it",
        name,
        dtype_name(parameter.value().dtype()));
  }
}

std::vector<Trained> find_trained(
    const ParameterTree& tree,
    const FrozenParameters& frozen) {
  std::vector<Trained> trained;
  std::set<std::string> names;
  std::set<const Parameter*> seen;
  tree([&](const std::string& name, Parameter& parameter) {
    if (!names.insert(name).second || !seen.insert(&parameter).second) {
      refuse("parameter '{}' is twice in the tree", name);
    }
    if (!frozen || !frozen(name)) {
      check_trainable(name, parameter);
      trained.push_back({name, &parameter});
    }
  });
  if (trained.empty()) {
    refuse("none of {} parameters is left to train", names.size());
  }
  return trained;
}

// Parameters hold other arrays until this dies.
class SwappedParameters {
 public:
  SwappedParameters() = default;
  SwappedParameters(const SwappedParameters&) = delete;
  SwappedParameters& operator=(const SwappedParameters&) = delete;
  ~SwappedParameters() {
    for (auto& [parameter, arrays] : replaced_) {
      parameter->set(std::move(arrays));
    }
  }

  void swap(Parameter& parameter, const mx::array& value) {
    replaced_.emplace_back(&parameter, parameter.arrays());
    parameter.set({value, std::nullopt, std::nullopt});
  }

 private:
  std::vector<std::pair<Parameter*, WeightArrays>> replaced_;
};

}  // namespace

FrozenParameters frozen_names(
    const ParameterTree& tree,
    std::set<std::string> names) {
  auto unknown = names;
  tree([&](const std::string& name, Parameter&) { unknown.erase(name); });
  if (!unknown.empty()) {
    refuse("there is no parameter '{}' to freeze", *unknown.begin());
  }
  return [names = std::move(names)](const std::string& name) {
    return names.contains(name);
  };
}

ParameterGradients::ParameterGradients(
    ParameterTree tree,
    ArrayFunction loss,
    FrozenParameters frozen)
    : tree_(std::move(tree)),
      loss_(std::move(loss)),
      frozen_(std::move(frozen)) {
  if (!tree_ || !loss_) {
    refuse("no {}", tree_ ? "loss function" : "parameter tree");
  }
  fault_point("parameter_gradients.construct");
}

ParameterGradients::Result ParameterGradients::apply(
    const std::vector<mx::array>& inputs) const {
  if (!tree_ || !loss_) {
    refuse("used after a move");
  }
  auto trained = find_trained(tree_, frozen_);
  std::vector<mx::array> arguments;
  std::vector<int> indices;
  for (const auto& [name, parameter] : trained) {
    indices.push_back(static_cast<int>(arguments.size()));
    arguments.push_back(parameter->value());
  }
  arguments.insert(arguments.end(), inputs.begin(), inputs.end());
  fault_point("parameter_gradients.apply.parameters");

  auto loss_of_arguments = [&](const std::vector<mx::array>& traced) {
    SwappedParameters swapped;
    for (size_t i = 0; i < trained.size(); ++i) {
      swapped.swap(*trained[i].parameter, traced[i]);
      fault_point("parameter_gradients.apply.swap");
    }
    auto loss = loss_({traced.begin() + indices.size(), traced.end()});
    fault_point("parameter_gradients.apply.loss");
    return loss;
  };
  auto [loss, gradients] =
      ValueAndGrad(loss_of_arguments, indices).apply(arguments);

  Result result{loss, {}};
  for (size_t i = 0; i < trained.size(); ++i) {
    result.gradients.push_back({trained[i].name, gradients[i]});
  }
  fault_point("parameter_gradients.apply.result");
  return result;
}

}  // namespace mlxx
