#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/core/safetensors_builder.h"

namespace mlxx::hub {

// A safetensors file tensor by tensor, of any dtype and with any bytes.
class TensorFile {
 public:
  template <typename T>
  void add(
      const std::string& name,
      const std::string& dtype,
      const std::vector<int64_t>& shape,
      const std::vector<T>& numbers) {
    std::string bytes(numbers.size() * sizeof(T), '\0');
    if (!numbers.empty()) {
      std::memcpy(bytes.data(), numbers.data(), bytes.size());
    }
    tensors_.push_back({name, dtype, shape, bytes});
  }
  void remove(const std::string& name) {
    std::erase_if(tensors_, [&](const auto& t) { return t.name == name; });
  }
  void reshape(const std::string& name, const std::vector<int64_t>& shape) {
    for (auto& tensor : tensors_) {
      if (tensor.name == name) {
        tensor.shape = shape;
      }
    }
  }
  std::string build() const {
    std::string header = "{", data;
    for (const auto& tensor : tensors_) {
      header += header.size() > 1 ? "," : "";
      header += safetensors_entry(
          tensor.name,
          tensor.dtype,
          fmt::format("[{}]", fmt::join(tensor.shape, ",")),
          data.size(),
          data.size() + tensor.bytes.size());
      data += tensor.bytes;
    }
    return safetensors_text(header + "}", data);
  }

 private:
  struct Tensor {
    std::string name;
    std::string dtype;
    std::vector<int64_t> shape;
    std::string bytes;
  };
  std::vector<Tensor> tensors_;
};

// Numbers below `bound`, the same each time.
inline std::vector<int> random_numbers(size_t count, int bound, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int> out(count);
  for (int& n : out) {
    n = static_cast<int>(random() % static_cast<unsigned>(bound));
  }
  return out;
}

// Positive halves between 2^-7 and 2^-3, as bits.
inline std::vector<uint16_t> random_halves(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<uint16_t> out(count);
  for (auto& bits : out) {
    bits = static_cast<uint16_t>((8 + random() % 4) << 10 | (random() & 1023));
  }
  return out;
}

inline double half_value(uint16_t bits) {
  return std::ldexp(1024 + (bits & 1023), (bits >> 10 & 31) - 25);
}

}  // namespace mlxx::hub
