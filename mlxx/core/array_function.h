#pragma once

#include <functional>
#include <vector>

#include "mlxx/core/mlx.h"

namespace mlxx {

// What the transforms of this folder take and give: arrays in, arrays out.
using ArrayFunction =
    std::function<std::vector<mx::array>(const std::vector<mx::array>&)>;

}  // namespace mlxx
