#pragma once

#include "mlxx/train/trainable.h"

namespace mlxx::train {

// For Trainable::set_values(): invalid_request, naming `place`, unless there
// are as many arrays as now, each in the shape and dtype of the one it
// replaces.
void check_replaced(
    const char* place,
    const Trainable& trainable,
    const std::vector<mx::array>& values);

}  // namespace mlxx::train
