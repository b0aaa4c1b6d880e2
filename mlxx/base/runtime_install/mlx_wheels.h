#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mlxx::runtime {

// One wheel of the Python package index, pinned by hash.
struct WheelPin {
  std::string file;      // mlx_cpu-0.32.4-py3-none-manylinux_2_35_x86_64.whl
  std::string sha256;    // lower-case hexadecimal
  std::string platform;  // pip's name of the platform it is for
  std::string package;   // mlx-cpu
  std::string version;   // 0.32.4
};

struct VariantPins {
  std::string name;  // cpu, cuda12, cuda13, metal
  WheelPin mlx;
  // NVIDIA's libraries that libmlx needs beside the driver. They come under
  // NVIDIA's own licence.
  std::vector<WheelPin> libraries;
};

// All variants that mlxx knows, for any machine.
std::vector<std::string> known_variants();

// The wheels of a variant for this machine. invalid_request for an unknown
// name (with the known ones), unsupported if there is none for this machine.
VariantPins pins_for_this_machine(std::string_view variant);

}  // namespace mlxx::runtime
