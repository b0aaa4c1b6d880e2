#pragma once

#include <string>

namespace mlxx::apps {

// What --version prints: mlxx with its commit, MLX, and what this build can
// do, one per line.
std::string version_text();

}  // namespace mlxx::apps
