#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace mlxx::runtime {

// Where a libmlx may come from, in the order of preference.
enum class Origin {
  already_loaded,  // the process has one, and can have one only
  named,           // MLXX_LIBMLX or the caller
  beside_program,  // in the folder of the program or of libmlxx, or ../lib
  installed,       // by `mlxx runtime install`
  build_tree,      // what this build of mlxx was linked against
  system,          // usual folders of the system and of Homebrew
  default_search,  // by name, so that the system's own message appears
};

std::string_view to_string(Origin origin);

struct Candidate {
  Origin origin = Origin::default_search;
  std::filesystem::path path = {};
  std::string variant = {};  // "cuda13" for an installed one, else empty
  // Why it will not be tried, such as "is not there"; empty if it will be.
  std::string problem = {};
};

struct LoaderOptions {
  // A libmlx to use and no other. Empty: MLXX_LIBMLX, else the search.
  std::filesystem::path libmlx;
  // As MLXX_BLAS, which it replaces: "mlx", "openblas" or a path.
  std::string blas;
};

// All places in order. Loads nothing but, if a CUDA variant is installed, the
// NVIDIA driver's library. With a named libmlx that is the only candidate.
std::vector<Candidate> find_candidates(const LoaderOptions& options = {});

// MLXX_HOME/runtime, where variants are installed.
std::filesystem::path runtime_folder();

// "cuda13-0.32.4" for a variant of the MLX that mlxx was built against.
std::string variant_folder_name(std::string_view variant);

// libmlx inside the unpacked wheel.
std::filesystem::path libmlx_in(const std::filesystem::path& wheel_folder);

// The folder of the program or library that this code is linked into.
std::filesystem::path module_folder();

// The MLX version that mlxx was built against.
std::string_view built_against();

}  // namespace mlxx::runtime
