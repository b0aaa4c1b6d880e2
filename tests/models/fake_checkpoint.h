#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/models/registry.h"

namespace mlxx::models {

// A checkpoint whose tensors live in memory.
class FakeCheckpoint : public hub::Checkpoint {
 public:
  explicit FakeCheckpoint(Json config, std::string format = "safetensors")
      : config_(std::move(config)), format_(std::move(format)) {}

  void add(const std::string& name, const mx::array& value) {
    mx::eval(value);
    hub::TensorInfo info{
        .name = name,
        .shape = {value.shape().begin(), value.shape().end()},
        .stored = "F32",
        .nbytes = value.nbytes(),
        .quantization = std::nullopt};
    put(info, {value, std::nullopt, std::nullopt});
  }

  void add_quantized(
      const std::string& name,
      const mx::array& value,
      const hub::Quantization& q) {
    auto parts = mx::quantize(value, q.group_size, q.bits, q.mode);
    mx::eval(parts);
    hub::TensorInfo info{
        .name = name,
        .shape = {value.shape().begin(), value.shape().end()},
        .stored = "U32 " + q.mode,
        .nbytes = parts[0].nbytes() + parts[1].nbytes() * 2,
        .quantization = q};
    put(info,
        {parts[0],
         parts[1],
         parts.size() > 2 ? std::optional(parts[2]) : std::nullopt});
  }

  void remove(const std::string& name) {
    weights_.erase(name);
    std::erase_if(infos_, [&](const auto& t) { return t.name == name; });
  }

  Json& mutable_config() {
    return config_;
  }
  const std::filesystem::path& path() const override {
    return path_;
  }
  std::string format() const override {
    return format_;
  }
  const Json& config() const override {
    return config_;
  }
  const Json& generation_config() const override {
    return empty_;
  }
  const hub::TextFiles& text() const override {
    return text_;
  }
  const std::vector<hub::TensorInfo>& tensors() const override {
    return infos_;
  }
  uint64_t file_bytes() const override {
    uint64_t bytes = 0;
    for (const auto& info : infos_) {
      bytes += info.nbytes;
    }
    return bytes;
  }
  hub::Weight load(const std::string& name, const hub::LoadDtype&)
      const override {
    auto found = weights_.find(name);
    if (found == weights_.end()) {
      fail(ErrorKind::not_found, "fake", "no tensor '{}'", name);
    }
    return found->second;
  }

 private:
  void put(const hub::TensorInfo& info, const hub::Weight& weight) {
    remove(info.name);
    auto at =
        std::ranges::lower_bound(infos_, info.name, {}, &hub::TensorInfo::name);
    infos_.insert(at, info);
    weights_.emplace(info.name, weight);
  }

  Json config_;
  std::string format_;
  std::filesystem::path path_ = "fake";
  Json empty_ = Json::object();
  hub::TextFiles text_;
  std::vector<hub::TensorInfo> infos_;
  std::map<std::string, hub::Weight> weights_;
};

inline kernels::Selection selection(bool fallback) {
  kernels::Selection chosen = kernels::select_best();
  chosen.fallback = fallback;
  return chosen;
}

// Random weights for every parameter that the config asks for, from a fixed
// key: small matrices, norms near one. Quantized where `q` is given and fits.
inline FakeCheckpoint random_checkpoint(
    const Json& config,
    const std::optional<hub::Quantization>& q = std::nullopt,
    mx::Dtype dtype = mx::float32) {
  FakeCheckpoint checkpoint(config);
  auto model =
      find_model(config.at("model_type").get<std::string>()).make(checkpoint);
  mx::array key = mx::random::key(7);
  model->visit([&](const std::string& name, Parameter& parameter) {
    auto [next, used] = mx::random::split(key);
    key = next;
    mx::array noise =
        mx::random::normal(parameter.shape(), mx::float32, 0.0f, 1.0f, used);
    bool is_matrix = parameter.kind() == Parameter::Kind::matrix;
    bool is_norm = name.ends_with("norm.weight");
    float scale = is_matrix ? 1.0f / std::sqrt(parameter.shape().back()) : 0.1f;
    mx::array value = mx::multiply(noise, mx::array(scale));
    if (is_norm) {
      value = mx::add(value, mx::array(1.0f));
    }
    value = mx::astype(value, dtype);
    if (q && is_matrix && value.shape().back() % q->group_size == 0) {
      checkpoint.add_quantized(name, value, *q);
    } else {
      checkpoint.add(name, value);
    }
  });
  return checkpoint;
}

}  // namespace mlxx::models
