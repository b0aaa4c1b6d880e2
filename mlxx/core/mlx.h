#pragma once

#include <mlx/mlx.h>

namespace mlxx {
namespace mx = mlx::core;
}  // namespace mlxx
