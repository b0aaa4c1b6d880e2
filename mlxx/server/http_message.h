#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mlxx::server {

struct HttpHeader {
  std::string name;  // as it came; compared without regard to case
  std::string value;
};

// A request as handlers see it: framing is done with, the path is decoded.
struct HttpRequest {
  std::string id;         // of logs and X-Request-Id
  std::string peer;       // "127.0.0.1", or "unix"
  bool is_local = false;  // came over the unix socket
  std::string method;     // "POST"; HEAD stays HEAD
  std::string target;     // as it came
  std::string path;       // decoded, without the query
  std::vector<HttpHeader> headers;
  std::string body;
  bool is_http_1_0 = false;
  bool keep_alive = true;
  // Set by the handler: whose request it is, and what every answer to it says.
  std::string tenant;
  std::vector<HttpHeader> answer_headers;

  // The first header of that name; "" if there is none.
  std::string_view header(std::string_view name) const;
  bool has_header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<HttpHeader> headers;
  std::string body;
  bool closes = false;  // the connection must not serve another request
};

std::string_view status_text(int status);

// ASCII only.
bool equal_ignoring_case(std::string_view a, std::string_view b);
std::string to_lower(std::string_view text);

// What a header may carry: control characters and bytes beyond ASCII become
// '?', so that a quoted name can't end the line.
std::string header_safe(std::string_view value);

// %XX decoded. Nothing if an escape is broken or hides a NUL.
bool decode_path(std::string_view raw, std::string& decoded);

// The decoded value of a parameter after the '?' of a target.
std::optional<std::string> query_value(
    std::string_view target,
    std::string_view name);

// The lines up to and including the empty one. `length`: of the body; negative:
// chunked, or up to the end of the connection for HTTP/1.0.
std::string format_head(
    const HttpRequest& request,
    const HttpResponse& response,
    int64_t length,
    bool keep_alive);

}  // namespace mlxx::server
