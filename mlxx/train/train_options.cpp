#include <nlohmann/json.hpp>

#include "mlxx/train/trainer.h"

namespace mlxx::train {

namespace {

std::string text(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace

std::map<std::string, std::string> TrainOptions::fingerprint() const {
  auto all = identity;
  const auto add = [&](const std::string& name, const Json& value) {
    all[name] = text(value);
  };
  add("--method", to_string(objective.method));
  if (objective.method == Method::dpo) {
    add("--beta", objective.beta);
  }
  if (objective.method == Method::orpo) {
    add("--orpo-lambda", objective.lambda);
  }
  add("--optimizer", optimizer.name);
  const auto& o = optimizer;
  add("optimizer_config",
      {{"betas", or_null(o.betas)},
       {"eps", or_null(o.eps)},
       {"bias_correction", o.bias_correction},
       {"weight_decay", or_null(o.weight_decay)},
       {"momentum", or_null(o.momentum)},
       {"nesterov", or_null(o.nesterov)},
       {"dampening", o.dampening},
       {"ns_steps", o.ns_steps},
       {"factor_eps", o.factor_eps},
       {"clip_threshold", o.clip_threshold},
       {"decay_rate", o.decay_rate},
       {"beta_1", or_null(o.beta_1)},
       {"scale_parameter", o.scale_parameter},
       {"relative_step", o.relative_step},
       {"warmup_init", o.warmup_init}});
  add("learning rate",
      {{"name", schedule.name},
       {"arguments", schedule.arguments},
       {"warmup", schedule.warmup},
       {"warmup_init", schedule.warmup_init}});
  add("--grad-accumulation-steps", accumulation);
  add("--grad-clip", clip);
  add("--seed", seed);
  return all;
}

}  // namespace mlxx::train
