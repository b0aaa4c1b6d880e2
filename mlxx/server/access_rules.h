#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/server/http_message.h"

namespace mlxx::server {

struct AccessOptions {
  std::vector<std::string> api_keys;  // none: everybody who can connect may
  // Host names by which this server may be addressed, beside loopback, `host`
  // and (if all addresses are listened on) addresses as numbers. "*": any.
  std::vector<std::string> allowed_hosts;
  // Origins of web pages that may use it, "https://app.example"; "*": any.
  std::vector<std::string> allowed_origins;
  std::string host;  // that it listens on
};

// Who may ask. Keeps web pages and rebound names away from a local server.
class AccessRules {
 public:
  explicit AccessRules(const AccessOptions& options);

  struct Refusal {
    int status = 403;
    std::string message;
    std::string code;
  };
  // Host and Origin; and the key, unless the path `is_open`.
  std::optional<Refusal> check(const HttpRequest& request, bool is_open) const;
  // What lets a page of an allowed origin read the answer. Never with
  // credentials: keys are sent by scripts that know them.
  std::vector<HttpHeader> origin_headers(const HttpRequest& request) const;
  // A name for who sent a key, or for the address if none is wanted.
  std::string tenant(const HttpRequest& request) const;
  bool wants_keys() const {
    return !key_digests_.empty();
  }

 private:
  bool is_known_host(const HttpRequest& request) const;
  bool is_allowed_origin(const HttpRequest& request) const;
  bool has_key(const HttpRequest& request) const;

  AccessOptions options_;
  bool any_host_ = false;
  bool any_origin_ = false;
  bool all_addresses_ = false;
  // Digests are of one length, so that comparing tells nothing of the keys'.
  std::vector<std::string> key_digests_;
};

// Without the port; "[::1]:80" gives "::1".
std::string host_of_authority(std::string_view authority);
bool is_address(const std::string& host);
bool is_loopback(const std::string& host);

}  // namespace mlxx::server
