#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "mlxx/hub/content_hash.h"
#include "mlxx/hub/hub_settings.h"
#include "mlxx/hub/model_name.h"

namespace mlxx::hub {

struct Download {
  std::string url;
  std::filesystem::path target;  // in a folder that exists
  uint64_t size = 0;
  ContentHash hash;
  RepoName name;     // for messages
  std::string file;  // for messages
};

// What happens during one download; each may throw to cancel it.
struct DownloadEvents {
  // Bytes of the file that are there, those of earlier attempts included.
  std::function<void(uint64_t bytes)> on_bytes = {};
  std::function<void()> on_tick = {};  // about once a second
};

// Gets one file: goes on where an earlier attempt stopped (in this process or
// another), through broken connections and busy servers, checks size and hash
// and only then gives the file its name. The caller holds the lock of `target`.
// Errors: those of fail_with_status, bad_file (another size or hash), internal
// (connection, disk).
void download_file(
    HttpClient& client,
    const HubSettings& settings,
    const Download& download,
    const DownloadEvents& events);

}  // namespace mlxx::hub
