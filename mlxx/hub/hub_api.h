#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mlxx/hub/content_hash.h"
#include "mlxx/hub/http_client.h"
#include "mlxx/hub/hub_settings.h"
#include "mlxx/hub/model_name.h"

namespace mlxx::hub {

// A file of a repository, as the hub lists it. The name is safe.
struct RepoFile {
  std::string name;
  std::optional<uint64_t> size;
  std::optional<ContentHash> hash;
};

struct RepoListing {
  std::string commit;
  std::vector<RepoFile> files;  // sorted by name, none twice
};

// What a hub says about repositories. Asks again, with growing pauses, when the
// connection breaks or the hub is busy.
class HubApi {
 public:
  // `on_tick` is called about once a second and may throw to cancel.
  HubApi(
      HttpClient& client,
      const HubSettings& settings,
      std::function<void()> on_tick = {});

  // GET /api/models/REPO/revision/REV?blobs=true. Errors: not_found (no such
  // repository or revision; or it is private), invalid_request (access must be
  // asked for; the token is refused), bad_file (an answer that is no listing,
  // or holds a file name that leads out of its folder), internal (no
  // connection).
  RepoListing list(const RepoName& name);

  // Size and hash of one file from the headers of its URL, for a hub whose
  // listing has none.
  RepoFile describe(
      const RepoName& name,
      const std::string& commit,
      const std::string& file);

  std::string file_url(
      const RepoName& name,
      const std::string& commit,
      const std::string& file) const;

 private:
  HttpHead
  ask(const RepoName& name, const HttpRequest& request, std::string& body);

  HttpClient* client_;
  const HubSettings* settings_;
  std::function<void()> on_tick_;
};

// Throws what an error status of the hub means for the user.
[[noreturn]] void fail_with_status(
    const HttpHead& head,
    const RepoName& name,
    const HubSettings& settings);

}  // namespace mlxx::hub
