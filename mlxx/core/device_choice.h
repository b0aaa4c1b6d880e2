#pragma once

#include <string_view>

namespace mlxx {

// Makes the GPU of that number MLX's default device for the process, before
// arrays are made. `text`: a number from 0, as users wrote it at `place`.
// invalid_request, naming the place, for other text or a GPU that is not there;
// 0 is right everywhere.
void choose_device(std::string_view place, std::string_view text);

}  // namespace mlxx
