#include "mlxx/base/runtime_loader/shared_library.h"

#include <algorithm>
#include <fstream>

#include <dlfcn.h>
#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

namespace mlxx::runtime {

OpenedLibrary open_library(const std::string& name, Scope scope) {
  int flags = RTLD_NOW | (scope == Scope::global ? RTLD_GLOBAL : RTLD_LOCAL);
  OpenedLibrary opened{.handle = dlopen(name.c_str(), flags), .error = {}};
  if (!opened.handle) {
    const char* error = dlerror();
    opened.error = error ? error : "the loader gave no reason";
  }
  return opened;
}

void* find_loaded_library(const std::string& name) {
  return dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

void* find_symbol(void* handle, const char* name) {
  return dlsym(handle, name);
}

void* find_global_symbol(const char* name) {
  return dlsym(RTLD_DEFAULT, name);
}

std::optional<std::filesystem::path> library_of(const void* address) {
  Dl_info info{};
  if (!dladdr(const_cast<void*>(address), &info) || !info.dli_fname ||
      !*info.dli_fname) {
    return std::nullopt;
  }
  std::error_code error;
  std::filesystem::path name = info.dli_fname;
  // The main program shows as argv[0], which need not be a path.
#ifdef __linux__
  if (!name.has_parent_path()) {
    name = "/proc/self/exe";
  }
#endif
  auto path = std::filesystem::canonical(name, error);
  if (error) {
    return std::nullopt;
  }
  return path;
}

std::vector<std::filesystem::path> mapped_libraries(std::string_view part) {
  std::vector<std::filesystem::path> paths;
  auto add = [&](std::string_view name) {
    size_t slash = name.rfind('/');
    if (slash == std::string_view::npos ||
        name.find(part, slash) == std::string_view::npos ||
        (name.find(".so", slash) == std::string_view::npos &&
         name.find(".dylib", slash) == std::string_view::npos)) {
      return;
    }
    std::filesystem::path path(name);
    if (std::find(paths.begin(), paths.end(), path) == paths.end()) {
      paths.push_back(std::move(path));
    }
  };
#ifdef __APPLE__
  for (uint32_t i = 0; i < _dyld_image_count(); ++i) {
    add(_dyld_get_image_name(i));
  }
#else
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (size_t path = line.find('/'); path != std::string::npos) {
      add(std::string_view(line).substr(path));
    }
  }
#endif
  return paths;
}

std::string library_file_name(std::string_view stem) {
#ifdef __APPLE__
  constexpr std::string_view kSuffix = ".dylib";
#else
  constexpr std::string_view kSuffix = ".so";
#endif
  return "lib" + std::string(stem) + std::string(kSuffix);
}

}  // namespace mlxx::runtime
