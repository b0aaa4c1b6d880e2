#pragma once

#include "mlxx/core/mlx.h"

namespace mlxx {

// The first n elements of `a` along `axis`, where n is the length of `like`
// [n], whose values nobody reads: a view, on every device, as mx::slice makes
// it. Unlike a slice it can be part of a shapeless graph, which then serves
// every n. Not differentiable. internal unless `like` has one dimension and
// 1 <= n <= a.shape(axis).
mx::array leading_view(const mx::array& a, int axis, const mx::array& like);

// Something [n] for `like` that takes no memory.
mx::array length_only(int n);

}  // namespace mlxx
