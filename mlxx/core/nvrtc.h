#pragma once

#include <optional>
#include <string>

namespace mlxx {

// Machine code for a kind of GPU ("sm_90") from CUDA C++17 that includes at
// most CUDA's own headers, by the NVRTC that libmlx brought into this process.
// Nothing if there is none, if CUDA's headers are not where MLX would look for
// them, or if the text does not compile; `why_not` then says what was wrong.
// Any thread.
std::optional<std::string> compile_with_nvrtc(
    const std::string& source,
    const std::string& architecture,
    std::string* why_not);

}  // namespace mlxx
