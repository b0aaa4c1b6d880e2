#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace mlxx::hub {

struct HttpTimeouts {
  std::chrono::seconds connect{10};
  // Less than a byte per second for so long counts as a cut connection.
  std::chrono::seconds stall{30};
};

struct HttpRequest {
  std::string url;  // http or https
  bool head_only = false;
  // "Authorization: Bearer" for the origin (scheme, host, port) of `url`. A
  // redirect to another origin is followed without it.
  std::string bearer_token = {};
  // Not 0: ask for the bytes from here on ("Range").
  uint64_t range_start = 0;
  // false: a redirect to another origin is returned as it is.
  bool leave_origin = true;
};

// Status and headers of one response.
struct HttpHead {
  int status = 0;
  std::string url;                             // that answered, after redirects
  std::map<std::string, std::string> headers;  // names in lower case
  std::optional<std::chrono::seconds> retry_after;

  // Empty if there is no such header.
  std::string header(const std::string& lower_case_name) const;
};

enum class HttpEnd {
  whole,        // everything that the server announced has arrived
  cut,          // the connection broke, stalled or gave nothing
  unreachable,  // no such host, or nobody listens there
};

struct HttpResult {
  HttpEnd end = HttpEnd::whole;
  HttpHead head;        // status 0 if none arrived
  std::string trouble;  // one line, unless whole
};

struct HttpHandlers {
  // Once, before the body of the final response, or at its end without one.
  std::function<void(const HttpHead&)> on_head = {};
  // Bodies of 2xx only. What handlers throw ends the transfer and comes out of
  // send().
  std::function<void(std::span<const std::byte>)> on_body = {};
  // About once a second, also while nothing arrives. May throw to cancel.
  std::function<void()> on_tick = {};
};

// HTTP over libcurl, one request at a time; connections are kept for the next
// request. Honours the proxy variables, and SSL_CERT_FILE, CURL_CA_BUNDLE and
// REQUESTS_CA_BUNDLE for other root certificates. Not thread-safe.
class HttpClient {
 public:
  explicit HttpClient(const HttpTimeouts& timeouts = {});
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Sends and follows up to ten redirects, never from https to http. Broken
  // connections are in the result, as they may be tried again; what cannot get
  // better (a bad URL, a bad certificate, endless redirects) throws internal.
  HttpResult send(const HttpRequest& request, const HttpHandlers& handlers);

 private:
  struct Session;
  std::unique_ptr<Session> session_;
};

// "https://host:port" in lower case with the port always there; empty if
// `url` is no http or https URL.
std::string url_origin(const std::string& url);

// Percent-encodes all but letters, digits and "-._~"; '/' too unless kept.
std::string url_encode(std::string_view text, bool keep_slashes);

}  // namespace mlxx::hub
