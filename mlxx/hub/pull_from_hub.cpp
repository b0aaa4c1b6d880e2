#include <algorithm>
#include <system_error>

#include "mlxx/base/error.h"
#include "mlxx/base/paths.h"
#include "mlxx/hub/download.h"
#include "mlxx/hub/file_selection.h"
#include "mlxx/hub/hf_cache.h"
#include "mlxx/hub/hub_api.h"
#include "mlxx/hub/lock_file.h"
#include "mlxx/hub/part_file.h"
#include "mlxx/hub/pull.h"
#include "mlxx/hub/snapshot.h"

namespace mlxx::hub {

namespace fs = std::filesystem;

namespace {

// One pull from a hub.
class HubPull {
 public:
  HubPull(
      const RepoName& name,
      const HubSettings& settings,
      const PullEvents& events)
      : name_(name),
        settings_(settings),
        events_(events),
        cache_(settings.cache, name.repo),
        client_(settings.timeouts),
        api_(client_, settings, events.on_tick) {}

  PulledModel run(const RepoPull& options) {
    RepoListing listing = api_.list(name_);
    auto files = choose_files(listing, name_, {.include = options.include});
    for (RepoFile& file : files) {
      if (!file.size || !file.hash) {
        file = api_.describe(name_, listing.commit, file.name);
      }
    }
    cache_.make_folders();
    measure(files);
    for (const RepoFile& file : files) {
      get(listing.commit, file);
    }
    for (const RepoFile& file : files) {
      cache_.link(listing.commit, file.name, file.hash->hex);
    }
    cache_.write_ref(name_.revision_or_main(), listing.commit);
    PulledModel pulled;
    pulled.path = options.include.empty()
        ? find_model_in_snapshot(cache_.snapshot(listing.commit), name_)
        : cache_.snapshot(listing.commit);
    pulled.revision = listing.commit;
    pulled.bytes = progress_.total;
    pulled.downloaded = downloaded_;
    return pulled;
  }

 private:
  bool is_there(const RepoFile& file) const {
    // The name is given only to content whose hash was right.
    std::error_code error;
    fs::path blob = cache_.blob(file.hash->hex);
    return fs::is_regular_file(blob, error) &&
        fs::file_size(blob, error) == *file.size && !error;
  }

  void measure(const std::vector<RepoFile>& files) {
    for (const RepoFile& file : files) {
      progress_.total += *file.size;
    }
  }

  void report(uint64_t done_before, uint64_t bytes) {
    progress_.done = done_before + bytes;
    if (events_.on_progress) {
      events_.on_progress(progress_);
    }
  }

  void get(const std::string& commit, const RepoFile& file) {
    progress_.file = file.name;
    uint64_t before = progress_.done;
    if (!is_there(file)) {
      bool told = false;
      LockFile lock(
          cache_.blob_lock(file.hash->hex),
          [&](std::string_view owner) {
            if (!told && events_.on_step) {
              events_.on_step(fmt::format(
                  "{} is being downloaded by {}, waiting for it",
                  file.name,
                  owner));
            }
            told = true;
            if (events_.on_tick) {
              events_.on_tick();
            }
          });
      // The owner that was waited for may have got it.
      if (!is_there(file)) {
        download(commit, file, before);
      }
    }
    if (progress_.done < before + *file.size) {
      progress_.resumed += before + *file.size - progress_.done;
    }
    report(before, *file.size);
  }

  void
  download(const std::string& commit, const RepoFile& file, uint64_t before) {
    Download download{
        .url = api_.file_url(name_, commit, file.name),
        .target = cache_.blob(file.hash->hex),
        .size = *file.size,
        .hash = *file.hash,
        .name = name_,
        .file = file.name};
    std::error_code error;
    uint64_t left = fs::file_size(PartFile::path_for(download.target), error);
    uint64_t resumed = error || left > download.size ? 0 : left;
    progress_.resumed += resumed;
    download_file(
        client_,
        settings_,
        download,
        {.on_bytes = [&](uint64_t bytes) { report(before, bytes); },
         .on_tick = events_.on_tick});
    downloaded_ += download.size - resumed;
  }

  const RepoName& name_;
  const HubSettings& settings_;
  const PullEvents& events_;
  RepoCache cache_;
  HttpClient client_;
  HubApi api_;
  PullProgress progress_;
  uint64_t downloaded_ = 0;
};

}  // namespace

PulledModel pull_from_hub(
    const RepoName& name,
    const RepoPull& options,
    const HubSettings& settings,
    const PullEvents& events) {
  if (!settings.offline) {
    return HubPull(name, settings, events).run(options);
  }
  auto path = find_in_hub_cache(name, settings.cache);
  if (!path) {
    fail(
        ErrorKind::not_found,
        name.text(),
        "is not in {}, and HF_HUB_OFFLINE forbids to get it",
        settings.cache.string());
  }
  RepoCache cache(settings.cache, name.repo);
  return {
      .path = *path,
      .revision = cache.find_commit(name.revision_or_main()).value_or(""),
      .bytes = 0,
      .downloaded = 0};
}

}  // namespace mlxx::hub
