#include "mlxx/base/runtime_loader/runtime_loader.h"

#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/base/runtime_loader/blas.h"
#include "mlxx/base/runtime_loader/compiled_code.h"
#include "mlxx/base/runtime_loader/shared_library.h"
#include "mlxx/base/runtime_loader/trusted_path.h"

namespace mlxx::runtime {

namespace {

namespace fs = std::filesystem;

// const char* mlx::core::version(), the same name since MLX has it.
constexpr const char* kVersionSymbol = "_ZN3mlx4core7versionEv";
using VersionFunction = const char* (*)();

void require_plain_privileges() {
  if (has_raised_privileges()) {
    fail(
        ErrorKind::invalid_request,
        "mlxx",
        "does not run setuid, setgid or with file capabilities, since its "
        "environment names libraries to load");
  }
}

// unsupported if `handle` is another version than the one built against.
void check_version(void* handle, const fs::path& path) {
  auto version =
      reinterpret_cast<VersionFunction>(find_symbol(handle, kVersionSymbol));
  if (!version) {
    fail(
        ErrorKind::bad_file,
        path.string(),
        "is not MLX: it has no mlx::core::version()");
  }
  const char* text = version();
  std::string found = text ? text : "";
  if (found != built_against()) {
    fail(
        ErrorKind::unsupported,
        path.string(),
        "is MLX {}, but this mlxx was built against MLX {}; set MLXX_LIBMLX "
        "to one of that version or run `mlxx runtime install cpu`",
        found,
        built_against());
  }
}

fs::path path_of(void* handle, const fs::path& fallback) {
  auto path = library_of(find_symbol(handle, kVersionSymbol));
  return path ? *path : fallback;
}

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

// A process has one libmlx: what was loaded before us, by a host program such
// as Python, is used or refused, and its BLAS is settled.
LoadedRuntime adopt_loaded(
    void* handle,
    const std::vector<Candidate>& candidates) {
  fs::path path = path_of(handle, library_file_name("mlx"));
  check_version(handle, path);
  const Candidate& first = candidates.front();
  if (first.origin == Origin::named && !same_file(first.path, path)) {
    fail(
        ErrorKind::invalid_request,
        "MLXX_LIBMLX",
        "names {}, but this process has already loaded {}",
        first.path.string(),
        path.string());
  }
  return {
      .libmlx = path,
      .origin = Origin::already_loaded,
      .variant = {},
      .blas =
          {.path = {}, .reason = "libmlx was loaded before mlxx was started"},
      .passed_over = {}};
}

// The system's loader starts its messages with the path, which ours have.
std::string without_path(const std::string& error, const fs::path& path) {
  std::string start = path.string() + ": ";
  return error.starts_with(start) ? error.substr(start.size()) : error;
}

std::string describe(const std::vector<Candidate>& tried) {
  std::string text;
  for (const Candidate& candidate : tried) {
    text += fmt::format(
        "{}{} {}",
        text.empty() ? "" : "; ",
        candidate.path.string(),
        candidate.problem);
  }
  return text;
}

}  // namespace

LoadedRuntime load_libmlx(const LoaderOptions& options) {
  require_plain_privileges();
  keep_compiled_code();
  auto candidates = find_candidates(options);
  if (void* loaded = find_loaded_library(library_file_name("mlx"))) {
    return adopt_loaded(loaded, candidates);
  }
  // A named library that cannot be used is an error before anything is loaded.
  if (const Candidate& first = candidates.front();
      first.origin == Origin::named && !first.problem.empty()) {
    ErrorKind kind = first.problem == "is not there" ? ErrorKind::not_found
                                                     : ErrorKind::bad_file;
    fail(kind, first.path.string(), "{}", first.problem);
  }
  BlasInUse blas = load_blas(options.blas);
  std::vector<Candidate> passed_over;
  for (Candidate& candidate : candidates) {
    if (!candidate.problem.empty()) {
      passed_over.push_back(candidate);
      continue;
    }
    OpenedLibrary library =
        open_library(candidate.path.string(), Scope::global);
    if (!library.handle) {
      candidate.problem = "cannot be loaded: " +
          (candidate.origin == Origin::default_search
               ? library.error
               : without_path(library.error, candidate.path));
      passed_over.push_back(candidate);
      if (candidate.origin == Origin::installed) {
        log_warning("[{}] {}", candidate.path.string(), candidate.problem);
      }
      continue;
    }
    check_version(library.handle, path_of(library.handle, candidate.path));
    return {
        .libmlx = path_of(library.handle, candidate.path),
        .origin = candidate.origin,
        .variant = candidate.variant,
        .blas = blas,
        .passed_over = std::move(passed_over)};
  }
  if (candidates.front().origin == Origin::named) {
    const Candidate& named = passed_over.front();
    fail(ErrorKind::bad_file, named.path.string(), "{}", named.problem);
  }
  fail(
      ErrorKind::not_found,
      "libmlx",
      "no MLX {} was found ({}); get one with `mlxx runtime install cpu` (or "
      "cuda13, cuda12, metal), or name one in MLXX_LIBMLX",
      built_against(),
      describe(passed_over));
}

void* load_implementation() {
  fs::path folder = module_folder();
  std::string name = library_file_name("mlxx-impl");
  for (const fs::path& path :
       {folder / name, folder.parent_path() / "lib" / name}) {
    std::error_code error;
    if (!fs::exists(path, error)) {
      continue;
    }
    if (auto malformed = malformed_library(path)) {
      fail(ErrorKind::bad_file, path.string(), "{}", *malformed);
    }
    OpenedLibrary library = open_library(path.string(), Scope::local);
    if (!library.handle) {
      fail(
          ErrorKind::bad_file,
          path.string(),
          "cannot be loaded: {}",
          without_path(library.error, path));
    }
    return library.handle;
  }
  fail(
      ErrorKind::not_found,
      name,
      "is neither in {} nor in {}",
      folder.string(),
      (folder.parent_path() / "lib").string());
}

}  // namespace mlxx::runtime
