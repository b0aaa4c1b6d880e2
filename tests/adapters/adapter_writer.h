#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

#include "mlxx/adapters/adapter_file.h"
#include "mlxx/base/json.h"
#include "mlxx/core/safetensors_writer.h"

namespace mlxx::adapters {

// A folder that goes away with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "mlxx_adapter_XXXXXX")
            .string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const {
    return path_;
  }

 private:
  std::filesystem::path path_;
};

inline mx::array noise(const mx::Shape& shape, uint64_t key, float size) {
  mx::array values = mx::multiply(
      mx::random::normal(shape, mx::float32, 0, 1, mx::random::key(key)),
      mx::array(size));
  mx::eval(values);
  return values;
}

// A change of a layer of `in` inputs and `out` outputs.
inline LowRank random_change(
    const std::string& module,
    int in,
    int out,
    int rank,
    uint64_t key,
    bool dora = false) {
  LowRank change{
      module,
      noise({in, rank}, key, 0.2f),
      noise({rank, out}, key + 1000, 0.2f),
      2.0f,
      std::nullopt};
  if (dora) {
    change.magnitude =
        mx::add(mx::array(1.0f), mx::abs(noise({out}, key + 2000, 0.3f)));
  }
  return change;
}

inline void write_config(
    const std::filesystem::path& folder,
    const Json& config) {
  std::ofstream(folder / "adapter_config.json") << config.dump();
}

inline void write_mlx_lm(
    const std::filesystem::path& folder,
    const std::vector<LowRank>& changes) {
  SafetensorsArrays arrays;
  for (const LowRank& one : changes) {
    arrays.emplace_back(one.module + ".lora_a", one.a);
    arrays.emplace_back(one.module + ".lora_b", one.b);
    if (one.magnitude) {
      arrays.emplace_back(one.module + ".m", *one.magnitude);
    }
  }
  write_safetensors(folder / "adapters.safetensors", arrays);
  write_config(
      folder,
      {{"fine_tune_type", changes[0].magnitude ? "dora" : "lora"},
       {"num_layers", 2},
       {"lora_parameters",
        {{"rank", changes[0].a.shape(1)},
         {"scale", changes[0].scale},
         {"dropout", 0.1}}}});
}

// lora_alpha is such that the scale comes out as the first change has it.
inline Json peft_config(const std::vector<LowRank>& changes) {
  return {
      {"peft_type", "LORA"},
      {"r", changes[0].a.shape(1)},
      {"lora_alpha", changes[0].scale * changes[0].a.shape(1)},
      {"use_dora", changes[0].magnitude.has_value()},
      {"fan_in_fan_out", false},
      {"bias", "none"},
      {"modules_to_save", nullptr},
      {"lora_dropout", 0.05}};
}

inline void write_peft(
    const std::filesystem::path& folder,
    const std::vector<LowRank>& changes,
    const Json& config) {
  SafetensorsArrays arrays;
  for (const LowRank& one : changes) {
    std::string start = "base_model.model." + one.module;
    arrays.emplace_back(start + ".lora_A.weight", mx::transpose(one.a));
    arrays.emplace_back(start + ".lora_B.weight", mx::transpose(one.b));
    if (one.magnitude) {
      arrays.emplace_back(start + ".lora_magnitude_vector", *one.magnitude);
    }
  }
  write_safetensors(folder / "adapter_model.safetensors", arrays);
  write_config(folder, config);
}

}  // namespace mlxx::adapters
