#pragma once

#include <filesystem>
#include <string>

namespace mlxx::engine {

// What decides which states a model's tokens have, for
// PrefixCache::keep_on_disk(): the weights and the kernels that compute with
// them. A checkpoint's folder or file, not read whole: of each file of weights,
// and of config.json, the name (also the one that a link leads to, which in a
// cache of a hub is a hash), size, time of writing and 64 samples; another
// MLXX_KERNEL, MLXX_CPU or MLXX_CPU_ACTIVATIONS, and another processor's
// instructions or another backend, have another identity. not_found if there is
// no such file.
std::string states_identity(const std::filesystem::path& checkpoint);

}  // namespace mlxx::engine
