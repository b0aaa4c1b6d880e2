#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mlxx::runtime {

// A library that stays loaded until the process ends: libmlx keeps threads and
// unique symbols, so nothing here is ever closed.
struct OpenedLibrary {
  void* handle = nullptr;  // null if it could not be loaded
  std::string error;       // then: what the system's loader said
};

enum class Scope {
  local,
  // Its symbols answer for libraries that are loaded later, which is how an
  // optimised BLAS takes the place of the one that libmlx brings.
  global,
};

// `name` is a path, or a bare name for the system's search.
OpenedLibrary open_library(const std::string& name, Scope scope);

// The library of that name if the process has it already, made global.
void* find_loaded_library(const std::string& name);

// Null if there is none.
void* find_symbol(void* handle, const char* name);
// In the global scope, in the order that libmlx's own references resolve.
void* find_global_symbol(const char* name);

// The library (or program) that contains an address.
std::optional<std::filesystem::path> library_of(const void* address);

// Paths of the libraries of this process whose file name contains `part`.
std::vector<std::filesystem::path> mapped_libraries(std::string_view part);

// "libmlx.so" or "libmlx.dylib" for "mlx".
std::string library_file_name(std::string_view stem);

}  // namespace mlxx::runtime
