#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace mlxx {

// What a file that should be a model probably is instead, judged by its first
// bytes: "a Git LFS pointer: fetch the real file with git lfs pull", "an HTML
// page" and the like. Absent if nothing is recognised.
std::optional<std::string_view> describe_foreign_file(
    std::span<const std::byte> bytes);

}  // namespace mlxx
