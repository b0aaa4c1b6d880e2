#include "mlxx/server/access_rules.h"

#include <algorithm>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

namespace mlxx::server {

namespace {

std::string digest(std::string_view text) {
  std::string result(SHA256_DIGEST_LENGTH, '\0');
  SHA256(
      reinterpret_cast<const unsigned char*>(text.data()),
      text.size(),
      reinterpret_cast<unsigned char*>(result.data()));
  return result;
}

bool contains(const std::vector<std::string>& list, std::string_view wanted) {
  return std::any_of(list.begin(), list.end(), [&](const auto& item) {
    return equal_ignoring_case(item, wanted);
  });
}

// "http://a:1/" -> "a:1"
std::string_view authority_of_origin(std::string_view origin) {
  auto scheme = origin.find("://");
  return scheme == std::string_view::npos ? std::string_view()
                                          : origin.substr(scheme + 3);
}

std::string_view key_of(const HttpRequest& request) {
  auto authorization = request.header("authorization");
  if (authorization.size() <= 7 ||
      !equal_ignoring_case(authorization.substr(0, 7), "bearer ")) {
    return request.header("x-api-key");
  }
  authorization.remove_prefix(7);
  while (authorization.starts_with(' ')) {
    authorization.remove_prefix(1);
  }
  return authorization;
}

}  // namespace

std::string host_of_authority(std::string_view authority) {
  if (authority.starts_with('[')) {
    auto end = authority.find(']');
    return std::string(
        authority.substr(1, end == std::string_view::npos ? end : end - 1));
  }
  // More than one colon without brackets: an IPv6 address by itself.
  if (std::count(authority.begin(), authority.end(), ':') == 1) {
    authority = authority.substr(0, authority.find(':'));
  }
  if (authority.ends_with('.')) {
    authority.remove_suffix(1);
  }
  return to_lower(authority);
}

bool is_address(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
      inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool is_loopback(const std::string& host) {
  in_addr address{};
  if (inet_pton(AF_INET, host.c_str(), &address) == 1) {
    return (ntohl(address.s_addr) >> 24) == 127;
  }
  return host == "localhost" || host == "::1" || host.ends_with(".localhost");
}

AccessRules::AccessRules(const AccessOptions& options) : options_(options) {
  any_host_ = contains(options.allowed_hosts, "*");
  any_origin_ = contains(options.allowed_origins, "*");
  options_.host = host_of_authority(options.host);
  all_addresses_ = options_.host == "0.0.0.0" || options_.host == "::";
  for (auto& host : options_.allowed_hosts) {
    host = host_of_authority(host);
  }
  for (const auto& key : options.api_keys) {
    key_digests_.push_back(digest(key));
  }
}

bool AccessRules::is_known_host(const HttpRequest& request) const {
  if (any_host_ || request.is_local) {
    return true;
  }
  auto given = request.header("host");
  if (given.empty()) {
    // HTTP/1.0, which no browser speaks.
    return request.is_http_1_0;
  }
  std::string host = host_of_authority(given);
  // A name can be made to point here; an address written as such cannot.
  return is_loopback(host) || host == options_.host ||
      (all_addresses_ && is_address(host)) ||
      contains(options_.allowed_hosts, host);
}

bool AccessRules::is_allowed_origin(const HttpRequest& request) const {
  auto origin = request.header("origin");
  if (origin.empty() && !request.has_header("origin")) {
    return true;
  }
  if (any_origin_ || contains(options_.allowed_origins, origin)) {
    return true;
  }
  // A page of this server itself; its Host has been checked.
  auto authority = authority_of_origin(origin);
  return !authority.empty() &&
      equal_ignoring_case(authority, request.header("host"));
}

bool AccessRules::has_key(const HttpRequest& request) const {
  auto given = key_of(request);
  if (given.empty()) {
    return false;
  }
  std::string wanted = digest(given);
  // All of them are compared, whichever fits.
  int found = 0;
  for (const auto& key : key_digests_) {
    found |= CRYPTO_memcmp(key.data(), wanted.data(), wanted.size()) == 0;
  }
  return found != 0;
}

std::string AccessRules::tenant(const HttpRequest& request) const {
  return wants_keys() ? digest(key_of(request)) : request.peer;
}

std::optional<AccessRules::Refusal> AccessRules::check(
    const HttpRequest& request,
    bool is_open) const {
  if (!is_known_host(request)) {
    return Refusal{
        403,
        "[host] this server is not addressed by that name; --allowed-hosts "
        "adds one",
        "host_not_allowed"};
  }
  if (!is_allowed_origin(request)) {
    return Refusal{
        403,
        "[origin] web pages of that origin may not use this server; "
        "--allowed-origins adds one",
        "origin_not_allowed"};
  }
  if (!is_open && wants_keys() && !has_key(request)) {
    return Refusal{
        401,
        "[key] a valid API key is needed, as 'Authorization: Bearer KEY' or "
        "'x-api-key: KEY'",
        "invalid_api_key"};
  }
  return std::nullopt;
}

std::vector<HttpHeader> AccessRules::origin_headers(
    const HttpRequest& request) const {
  auto origin = request.header("origin");
  if (any_origin_) {
    return {
        {"Access-Control-Allow-Origin", "*"},
        {"Access-Control-Expose-Headers", "X-Request-Id, X-Mlxx-Ignored"}};
  }
  if (options_.allowed_origins.empty()) {
    return {};
  }
  if (origin.empty() || !contains(options_.allowed_origins, origin)) {
    return {{"Vary", "Origin"}};
  }
  return {
      {"Access-Control-Allow-Origin", std::string(origin)},
      {"Access-Control-Expose-Headers", "X-Request-Id, X-Mlxx-Ignored"},
      {"Vary", "Origin"}};
}

}  // namespace mlxx::server
