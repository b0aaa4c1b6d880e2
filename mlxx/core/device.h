#pragma once

#include <string_view>

#include "mlxx/core/mlx.h"

namespace mlxx {

enum class Backend { cpu, metal, cuda };

// The backend of MLX's default device.
Backend backend();

// "cpu", "metal", "cuda".
std::string_view to_string(Backend backend);

}  // namespace mlxx
