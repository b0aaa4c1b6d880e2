#include "mlxx/server/request_reader.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

namespace mlxx::server {

namespace {

namespace http = boost::beast::http;
using Parser = http::request_parser<http::string_body>;

// Bytes that may be held back without a line of chunk framing in them.
constexpr size_t kMaxChunkLine = 16 << 10;

[[noreturn]] void refuse(int status, std::string message) {
  throw HttpError(status, std::move(message));
}

[[noreturn]] void refuse(boost::beast::error_code error) {
  if (error == http::error::body_limit) {
    refuse(413, "the body is larger than this server takes");
  }
  if (error == http::error::header_limit) {
    refuse(431, "the headers are larger than this server takes");
  }
  if (error == http::error::bad_version) {
    refuse(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
  }
  refuse(400, fmt::format("malformed HTTP: {}", error.message()));
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 18 &&
      std::all_of(text.begin(), text.end(), [](char c) {
        return c >= '0' && c <= '9';
      });
}

}  // namespace

struct RequestReader::Impl {
  const HttpLimits& limits;
  Parser parser;
  HttpRequest request;
  bool begun = false;
  bool has_head = false;
  bool done = false;
  bool expects_continue = false;

  explicit Impl(const HttpLimits& given) : limits(given) {
    parser.header_limit(static_cast<uint32_t>(limits.max_header_bytes));
    parser.body_limit(limits.max_body_bytes);
    parser.eager(false);
  }

  // The fields one by one: Beast takes "5, 5" and joins what comes twice.
  void check_head();
  void check_framing();
  void read_target();
};

void RequestReader::Impl::read_target() {
  const auto& target = request.target;
  if (target.size() > limits.max_target_bytes) {
    refuse(414, "the URL is longer than this server takes");
  }
  if (target == "*" && request.method == "OPTIONS") {
    request.path = target;
    return;
  }
  std::string_view rest = target;
  if (rest.empty() || rest[0] != '/') {
    // The absolute form, as proxies are sent it.
    auto scheme = rest.find("://");
    auto slash = scheme == std::string_view::npos ? std::string_view::npos
                                                  : rest.find('/', scheme + 3);
    if (slash == std::string_view::npos) {
      refuse(400, "the URL has no path");
    }
    rest = rest.substr(slash);
  }
  rest = rest.substr(0, rest.find_first_of("?#"));
  if (!decode_path(rest, request.path)) {
    refuse(400, "the URL has a broken escape");
  }
}

void RequestReader::Impl::check_framing() {
  int lengths = 0;
  int encodings = 0;
  std::string_view encoding;
  for (const auto& header : request.headers) {
    if (equal_ignoring_case(header.name, "content-length")) {
      ++lengths;
      if (!is_number(header.value)) {
        refuse(400, "Content-Length is not one number");
      }
    } else if (equal_ignoring_case(header.name, "transfer-encoding")) {
      ++encodings;
      encoding = header.value;
    }
  }
  if (lengths > 1 || encodings > 1 || (lengths > 0 && encodings > 0)) {
    refuse(400, "the length of the body is given more than once");
  }
  if (encodings > 0) {
    if (request.is_http_1_0) {
      refuse(400, "HTTP/1.0 has no Transfer-Encoding");
    }
    if (!equal_ignoring_case(encoding, "chunked")) {
      refuse(501, "Transfer-Encoding may only be chunked");
    }
  }
  bool needs_body = request.method == "POST" || request.method == "PUT" ||
      request.method == "PATCH";
  if (needs_body && lengths == 0 && encodings == 0) {
    refuse(411, "neither Content-Length nor chunked: send one");
  }
}

void RequestReader::Impl::check_head() {
  const auto& message = parser.get();
  request.method = std::string_view(
      message.method_string().data(),
      message.method_string().size());
  request.target =
      std::string_view(message.target().data(), message.target().size());
  request.is_http_1_0 = message.version() < 11;
  for (const auto& field : message) {
    request.headers.push_back(
        {std::string(field.name_string()), std::string(field.value())});
  }
  if (message.version() != 10 && message.version() != 11) {
    refuse(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
  }
  if (request.headers.size() > limits.max_headers) {
    refuse(431, "more headers than this server takes");
  }
  read_target();
  check_framing();
  auto hosts = std::count_if(
      request.headers.begin(),
      request.headers.end(),
      [](const auto& header) {
        return equal_ignoring_case(header.name, "host");
      });
  if (hosts > 1 || (hosts == 0 && !request.is_http_1_0)) {
    refuse(400, "one Host header is needed");
  }
  auto coding = request.header("content-encoding");
  if (!coding.empty() && !equal_ignoring_case(coding, "identity")) {
    refuse(415, "Content-Encoding is not supported");
  }
  auto expectation = request.header("expect");
  if (!expectation.empty()) {
    if (!equal_ignoring_case(expectation, "100-continue")) {
      refuse(417, "only 100-continue may be expected");
    }
    expects_continue = !request.is_http_1_0 && !parser.is_done();
  }
  request.keep_alive = parser.keep_alive();
}

RequestReader::RequestReader(const HttpLimits& limits)
    : impl_(std::make_unique<Impl>(limits)) {}

RequestReader::~RequestReader() = default;

size_t RequestReader::feed(std::string_view bytes) {
  auto& impl = *impl_;
  if (impl.done || bytes.empty()) {
    return 0;
  }
  if (!impl.begun) {
    // Old clients end a body with a line that belongs to nothing.
    if (bytes.starts_with("\r\n")) {
      return 2;
    }
    if (bytes == "\r") {
      return 0;
    }
    impl.begun = true;
  }
  boost::beast::error_code error;
  size_t taken = impl.parser.put(
      boost::asio::const_buffer(bytes.data(), bytes.size()),
      error);
  bool more = error == http::error::need_more;
  if (error && !more) {
    const auto& message = impl.parser.get();
    impl.request.target =
        std::string_view(message.target().data(), message.target().size());
    bool no_line = message.target().empty();
    if (error == http::error::header_limit && no_line) {
      refuse(414, "the URL is longer than this server takes");
    }
    refuse(error);
  }
  if (!impl.has_head && impl.parser.is_header_done()) {
    impl.has_head = true;
    impl.check_head();
  }
  if (impl.has_head && more && bytes.size() - taken > kMaxChunkLine) {
    refuse(400, "a line of chunked framing does not end");
  }
  if (impl.parser.is_done()) {
    impl.done = true;
    impl.request.body = std::move(impl.parser.get().body());
  }
  return taken;
}

bool RequestReader::has_begun() const {
  return impl_->begun;
}

bool RequestReader::has_head() const {
  return impl_->has_head;
}

bool RequestReader::is_done() const {
  return impl_->done;
}

bool RequestReader::expects_continue() const {
  return impl_->expects_continue;
}

HttpRequest& RequestReader::request() {
  return impl_->request;
}

}  // namespace mlxx::server
