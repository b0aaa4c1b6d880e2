#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/hub/checkpoint.h"

namespace mlxx::hub {

// Tensors in memory, which notes what was loaded.
class MemoryCheckpoint : public Checkpoint {
 public:
  void
  add(const std::string& name, const mx::array& value, std::string stored) {
    put(name,
        value,
        std::move(stored),
        {value, std::nullopt, std::nullopt},
        {});
  }
  void add_quantized(
      const std::string& name,
      const mx::array& value,
      const Quantization& q) {
    auto parts = mx::quantize(value, q.group_size, q.bits, q.mode);
    bool has_biases = parts.size() > 2;
    put(name,
        value,
        "U32 " + q.mode,
        {parts[0],
         parts[1],
         has_biases ? std::optional(parts[2]) : std::nullopt},
        q);
  }

  const std::filesystem::path& path() const override {
    return path_;
  }
  std::string format() const override {
    return "safetensors";
  }
  const Json& config() const override {
    return empty_;
  }
  const Json& generation_config() const override {
    return empty_;
  }
  const TextFiles& text() const override {
    return text_;
  }
  const std::vector<TensorInfo>& tensors() const override {
    return infos_;
  }
  uint64_t file_bytes() const override {
    return 1;
  }
  Weight load(const std::string& name, const LoadDtype&) const override {
    loaded.push_back(name);
    return weights_.at(name);
  }

  mutable std::vector<std::string> loaded;

 private:
  void put(
      const std::string& name,
      const mx::array& value,
      std::string stored,
      Weight weight,
      const std::optional<Quantization>& q) {
    mx::eval(weight.weight);
    uint64_t nbytes = weight.weight.nbytes();
    for (const auto& part : {weight.scales, weight.biases}) {
      nbytes += part ? part->nbytes() : 0;
    }
    TensorInfo info{
        .name = name,
        .shape = {value.shape().begin(), value.shape().end()},
        .stored = std::move(stored),
        .nbytes = nbytes,
        .quantization = q};
    auto at = std::ranges::lower_bound(infos_, name, {}, &TensorInfo::name);
    infos_.insert(at, info);
    weights_.emplace(name, std::move(weight));
  }

  std::filesystem::path path_ = "memory";
  Json empty_ = Json::object();
  TextFiles text_;
  std::vector<TensorInfo> infos_;
  std::map<std::string, Weight> weights_;
};

}  // namespace mlxx::hub
