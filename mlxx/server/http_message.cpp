#include "mlxx/server/http_message.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace mlxx::server {

namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  c = lower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return lower(x) == lower(y);
  });
}

std::string to_lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), lower);
  return result;
}

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& header : headers) {
    if (equal_ignoring_case(header.name, name)) {
      return header.value;
    }
  }
  return {};
}

bool HttpRequest::has_header(std::string_view name) const {
  return std::any_of(headers.begin(), headers.end(), [&](const auto& header) {
    return equal_ignoring_case(header.name, name);
  });
}

std::string_view status_text(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 421:
      return "Misdirected Request";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    case 529:
      return "Overloaded";
    default:
      return "Status";
  }
}

std::string header_safe(std::string_view value) {
  std::string result(value);
  for (char& c : result) {
    auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte > 0x7e) {
      c = '?';
    }
  }
  return result;
}

bool decode_path(std::string_view raw, std::string& decoded) {
  decoded.clear();
  for (size_t i = 0; i < raw.size(); ++i) {
    char c = raw[i];
    if (c == '%') {
      int high = i + 2 < raw.size() ? hex_digit(raw[i + 1]) : -1;
      int low = high >= 0 ? hex_digit(raw[i + 2]) : -1;
      if (low < 0 || (high == 0 && low == 0)) {
        return false;
      }
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    decoded.push_back(c);
  }
  return true;
}

std::optional<std::string> query_value(
    std::string_view target,
    std::string_view name) {
  auto begin = target.find('?');
  auto rest = begin == std::string_view::npos ? std::string_view()
                                              : target.substr(begin + 1);
  rest = rest.substr(0, rest.find('#'));
  while (!rest.empty()) {
    auto end = rest.find('&');
    auto pair = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    auto equals = pair.find('=');
    std::string value;
    if (pair.substr(0, equals) == name && equals != std::string_view::npos &&
        decode_path(pair.substr(equals + 1), value)) {
      return value;
    }
  }
  return std::nullopt;
}

std::string format_head(
    const HttpRequest& request,
    const HttpResponse& response,
    int64_t length,
    bool keep_alive) {
  std::string head;
  auto out = std::back_inserter(head);
  fmt::format_to(
      out,
      "HTTP/1.1 {} {}\r\n",
      response.status,
      status_text(response.status));
  if (!response.content_type.empty()) {
    fmt::format_to(out, "Content-Type: {}\r\n", response.content_type);
  }
  if (length >= 0 && response.status != 204) {
    fmt::format_to(out, "Content-Length: {}\r\n", length);
  } else if (length < 0 && !request.is_http_1_0) {
    fmt::format_to(out, "Transfer-Encoding: chunked\r\n");
  }
  for (const auto* headers : {&response.headers, &request.answer_headers}) {
    for (const auto& header : *headers) {
      fmt::format_to(
          out,
          "{}: {}\r\n",
          header_safe(header.name),
          header_safe(header.value));
    }
  }
  if (!request.id.empty()) {
    fmt::format_to(out, "X-Request-Id: {}\r\n", header_safe(request.id));
  }
  if (!keep_alive) {
    fmt::format_to(out, "Connection: close\r\n");
  } else if (request.is_http_1_0) {
    fmt::format_to(out, "Connection: keep-alive\r\n");
  }
  fmt::format_to(out, "\r\n");
  return head;
}

}  // namespace mlxx::server
