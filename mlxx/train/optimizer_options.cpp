#include <cmath>
#include <functional>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/train/optimizer.h"

namespace mlxx::train {

namespace {

[[noreturn]] void fail_at(
    const std::string& method,
    const std::string& key,
    std::string_view wanted,
    const Json& found) {
  fail(
      ErrorKind::invalid_request,
      "optimizer",
      "{} of {} is {}, found {}",
      key,
      method,
      wanted,
      found.dump(-1, ' ', true, Json::error_handler_t::replace));
}

struct Reader {
  const std::string& method;
  const std::string& key;
  const Json& value;

  double number(double least, double below, std::string_view wanted) const {
    if (!value.is_number()) {
      fail_at(method, key, wanted, value);
    }
    const double number = value.get<double>();
    if (!std::isfinite(number) || number < least || number >= below) {
      fail_at(method, key, wanted, value);
    }
    return number;
  }
  double from_zero() const {
    return number(0, 1e30, "a number of at least 0");
  }
  double fraction() const {
    return number(0, 1, "a number of at least 0 and below 1");
  }
  bool flag() const {
    if (!value.is_boolean()) {
      fail_at(method, key, "true or false", value);
    }
    return value.get<bool>();
  }
  std::array<double, 2> pair(bool fractions) const {
    if (!value.is_array() || value.size() != 2) {
      fail_at(method, key, "a list of two numbers", value);
    }
    std::array<double, 2> numbers{};
    for (size_t i = 0; i < 2; ++i) {
      const Reader part{method, key, value[i]};
      numbers[i] = fractions ? part.fraction() : part.from_zero();
    }
    return numbers;
  }
};

using Setter = std::function<void(OptimizerOptions&, const Reader&)>;

struct Argument {
  const char* name;
  const char* methods;  // between bars
  Setter set;
};

const std::vector<Argument>& arguments_of_methods() {
  static const std::vector<Argument> arguments = {
      {"betas",
       "|adam|adamw|lion|",
       [](auto& o, const auto& r) { o.betas = r.pair(true); }},
      {"eps",
       "|adam|adamw|",
       [](auto& o, const auto& r) { o.eps = r.from_zero(); }},
      {"bias_correction",
       "|adam|adamw|",
       [](auto& o, const auto& r) { o.bias_correction = r.flag(); }},
      {"weight_decay",
       "|adamw|sgd|lion|adafactor|muon|",
       [](auto& o, const auto& r) { o.weight_decay = r.from_zero(); }},
      {"momentum",
       "|sgd|muon|",
       [](auto& o, const auto& r) { o.momentum = r.fraction(); }},
      {"nesterov",
       "|sgd|muon|",
       [](auto& o, const auto& r) { o.nesterov = r.flag(); }},
      {"dampening",
       "|sgd|",
       [](auto& o, const auto& r) {
         o.dampening = r.number(0, 1.0000001, "a number from 0 to 1");
       }},
      {"ns_steps",
       "|muon|",
       [](auto& o, const auto& r) {
         const double steps = r.number(1, 101, "a whole number from 1 to 100");
         if (steps != std::floor(steps)) {
           fail_at(r.method, r.key, "a whole number", r.value);
         }
         o.ns_steps = static_cast<int>(steps);
       }},
      {"eps",
       "|adafactor|",
       [](auto& o, const auto& r) { o.factor_eps = r.pair(false); }},
      {"clip_threshold",
       "|adafactor|",
       [](auto& o, const auto& r) {
         o.clip_threshold = r.number(1e-30, 1e30, "a number above 0");
       }},
      {"decay_rate",
       "|adafactor|",
       [](auto& o, const auto& r) {
         o.decay_rate = r.number(-10, 1e-30, "a number of at most 0");
       }},
      {"beta_1",
       "|adafactor|",
       [](auto& o, const auto& r) { o.beta_1 = r.fraction(); }},
      {"scale_parameter",
       "|adafactor|",
       [](auto& o, const auto& r) { o.scale_parameter = r.flag(); }},
      {"relative_step",
       "|adafactor|",
       [](auto& o, const auto& r) { o.relative_step = r.flag(); }},
      {"warmup_init", "|adafactor|", [](auto& o, const auto& r) {
         o.warmup_init = r.flag();
       }}};
  return arguments;
}

}  // namespace

OptimizerOptions optimizer_options(
    const std::string& name,
    const Json& arguments) {
  OptimizerOptions options;
  options.name = name;
  if (!arguments.is_object()) {
    fail_at(name, "the arguments", "an object", arguments);
  }
  const std::string bar = "|" + name + "|";
  for (const auto& [key, value] : arguments.items()) {
    const Argument* found = nullptr;
    for (const auto& argument : arguments_of_methods()) {
      if (key == argument.name &&
          std::string_view(argument.methods).find(bar) !=
              std::string_view::npos) {
        found = &argument;
      }
    }
    if (!found) {
      fail(
          ErrorKind::invalid_request,
          "optimizer",
          "{} takes no \"{}\"",
          name,
          key);
    }
    found->set(options, Reader{name, key, value});
  }
  return options;
}

}  // namespace mlxx::train
