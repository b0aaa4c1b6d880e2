#include "mlxx/base/runtime_loader/candidates.h"

#include <fstream>
#include <optional>

#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"
#include "mlxx/base/paths.h"
#include "mlxx/base/runtime_loader/nvidia_driver.h"
#include "mlxx/base/runtime_loader/shared_library.h"
#include "mlxx/base/runtime_loader/trusted_path.h"

namespace mlxx::runtime {

namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

Candidate check(Candidate candidate) {
  if (!is_there(candidate.path)) {
    candidate.problem = "is not there";
  } else if (auto malformed = malformed_library(candidate.path)) {
    candidate.problem = *malformed;
  } else if (
      auto reason = candidate.origin == Origin::installed
          ? distrust(candidate.path, Trust::own, runtime_folder().parent_path())
          : distrust(candidate.path, Trust::named)) {
    candidate.problem = "is refused: " + *reason;
  }
  return candidate;
}

void add_beside(std::vector<Candidate>& found) {
  fs::path folder = module_folder();
  std::string name = library_file_name("mlx");
  fs::path packaged = libmlx_in(folder.parent_path() / "lib" / "mlxx");
  for (const fs::path& path :
       {folder / name, folder.parent_path() / "lib" / name, packaged}) {
    if (is_there(path)) {
      found.push_back(check({.origin = Origin::beside_program, .path = path}));
    }
  }
}

// The order in which installed variants are tried on this machine.
std::vector<std::string> variants_by_preference() {
#ifdef __APPLE__
  return {"metal", "cpu"};
#else
  std::vector<std::string> variants;
  fs::path folder = runtime_folder();
  bool has_cuda = is_there(folder / variant_folder_name("cuda13")) ||
      is_there(folder / variant_folder_name("cuda12"));
  if (has_cuda) {
    if (auto driver = find_nvidia_driver()) {
      if (driver->cuda_version >= 13000) {
        variants.push_back("cuda13");
      }
      variants.push_back("cuda12");
    }
  }
  variants.push_back("cpu");
  return variants;
#endif
}

void add_installed(std::vector<Candidate>& found) {
  if (!environment("MLXX_HOME") && !environment("XDG_CACHE_HOME") &&
      !environment("HOME")) {
    return;
  }
  for (const std::string& variant : variants_by_preference()) {
    fs::path folder = runtime_folder() / variant_folder_name(variant);
    if (is_there(folder)) {
      found.push_back(check(
          {.origin = Origin::installed,
           .path = libmlx_in(folder),
           .variant = variant}));
    }
  }
}

// A build folder holds one line with the path of the libmlx that it was linked
// against. The file is not installed.
void add_build_tree(std::vector<Candidate>& found) {
  fs::path note =
      module_folder().parent_path() / "lib" / "build_tree_libmlx.txt";
  std::ifstream file(note);
  std::string line;
  if (file && std::getline(file, line) && !line.empty()) {
    found.push_back(check({.origin = Origin::build_tree, .path = line}));
  }
}

void add_system(std::vector<Candidate>& found) {
  constexpr const char* kFolders[] = {
#ifdef __APPLE__
      "/opt/homebrew/lib",
      "/usr/local/lib",
#else
      "/usr/local/lib",
      "/usr/local/lib64",
#if defined(__x86_64__)
      "/usr/lib/x86_64-linux-gnu",
#else
      "/usr/lib/aarch64-linux-gnu",
#endif
      "/usr/lib64",
      "/usr/lib",
      "/home/linuxbrew/.linuxbrew/lib",
#endif
  };
  for (const char* folder : kFolders) {
    fs::path path = fs::path(folder) / library_file_name("mlx");
    if (is_there(path)) {
      found.push_back(check({.origin = Origin::system, .path = path}));
    }
  }
}

}  // namespace

std::string_view to_string(Origin origin) {
  switch (origin) {
    case Origin::already_loaded:
      return "already in this process";
    case Origin::named:
      return "named by MLXX_LIBMLX or the caller";
    case Origin::beside_program:
      return "beside the program";
    case Origin::installed:
      return "installed by mlxx runtime";
    case Origin::build_tree:
      return "of the build folder";
    case Origin::system:
      return "of the system";
    case Origin::default_search:
      return "the system's search";
  }
  return "";
}

std::vector<Candidate> find_candidates(const LoaderOptions& options) {
  std::vector<Candidate> found;
  std::optional<std::string> named = environment("MLXX_LIBMLX");
  if (!options.libmlx.empty() || named) {
    fs::path path = options.libmlx.empty() ? fs::path(*named) : options.libmlx;
    found.push_back(
        check({.origin = Origin::named, .path = fs::absolute(path)}));
    return found;
  }
  add_beside(found);
  add_installed(found);
  add_build_tree(found);
  add_system(found);
  found.push_back(
      {.origin = Origin::default_search, .path = library_file_name("mlx")});
  return found;
}

fs::path runtime_folder() {
  return mlxx_home() / "runtime";
}

std::string variant_folder_name(std::string_view variant) {
  return fmt::format("{}-{}", variant, built_against());
}

fs::path libmlx_in(const fs::path& wheel_folder) {
  return wheel_folder / "mlx" / "lib" / library_file_name("mlx");
}

fs::path module_folder() {
  auto path = library_of(reinterpret_cast<const void*>(&module_folder));
  if (!path) {
    fail(
        ErrorKind::internal,
        "libmlx",
        "the folder of the running program cannot be found");
  }
  return path->parent_path();
}

std::string_view built_against() {
  return MLXX_MLX_VERSION;
}

}  // namespace mlxx::runtime
