#include "mlxx/hub/http_client.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <string_view>

#include <curl/curl.h>

#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"

namespace mlxx::hub {

namespace {

constexpr int kMaxRedirects = 10;
constexpr size_t kMaxHeaders = 500;
// Of a response whose body nobody wants, such as an error page.
constexpr uint64_t kMaxIgnoredBody = uint64_t{1} << 20;

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return lower;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

struct FreeHeaderList {
  void operator()(curl_slist* list) const {
    curl_slist_free_all(list);
  }
};
using HeaderList = std::unique_ptr<curl_slist, FreeHeaderList>;

void append(HeaderList& list, const std::string& line) {
  curl_slist* longer = curl_slist_append(list.get(), line.c_str());
  if (!longer) {
    throw std::bad_alloc();
  }
  static_cast<void>(list.release());
  list.reset(longer);
}

bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 ||
      status == 308;
}

void start_curl() {
  // Not thread-safe in older versions, hence once and under a lock.
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

// What one request collects while curl calls back.
struct Exchange {
  CURL* handle = nullptr;
  const HttpHandlers* handlers = nullptr;
  HttpHead head;
  bool announced = false;
  uint64_t ignored = 0;
  std::exception_ptr thrown;

  void announce() {
    if (announced) {
      return;
    }
    announced = true;
    if (handlers->on_head) {
      handlers->on_head(head);
    }
  }

  // Exceptions must not pass through curl's C frames.
  template <typename Function>
  bool guard(const Function& function) {
    try {
      function();
      return true;
    } catch (...) {
      thrown = std::current_exception();
      return false;
    }
  }
};

size_t receive_header(char* bytes, size_t, size_t count, void* user) {
  auto* exchange = static_cast<Exchange*>(user);
  bool ok = exchange->guard([&] {
    std::string_view line(bytes, count);
    if (line.starts_with("HTTP/")) {
      // Another head follows an interim one (100, 103).
      exchange->head.headers.clear();
      long status = 0;
      curl_easy_getinfo(exchange->handle, CURLINFO_RESPONSE_CODE, &status);
      exchange->head.status = static_cast<int>(status);
      return;
    }
    size_t colon = line.find(':');
    if (colon == std::string_view::npos || exchange->announced ||
        exchange->head.headers.size() >= kMaxHeaders) {
      return;
    }
    exchange->head.headers[lower_case(trim(line.substr(0, colon)))] =
        trim(line.substr(colon + 1));
  });
  return ok ? count : CURL_WRITEFUNC_ERROR;
}

size_t receive_body(char* bytes, size_t, size_t count, void* user) {
  auto* exchange = static_cast<Exchange*>(user);
  bool ok = exchange->guard([&] {
    int status = exchange->head.status;
    if (status < 200 || status > 299) {
      exchange->ignored += count;
      if (exchange->ignored > kMaxIgnoredBody) {
        fail(
            ErrorKind::internal,
            exchange->head.url,
            "answers with status {} and an endless page",
            status);
      }
      return;
    }
    exchange->announce();
    if (exchange->handlers->on_body) {
      exchange->handlers->on_body(
          {reinterpret_cast<const std::byte*>(bytes), count});
    }
  });
  return ok ? count : CURL_WRITEFUNC_ERROR;
}

int tick(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto* exchange = static_cast<Exchange*>(user);
  bool ok = exchange->guard([&] {
    if (exchange->handlers->on_tick) {
      exchange->handlers->on_tick();
    }
  });
  return ok ? 0 : 1;
}

HttpEnd classify(CURLcode code) {
  switch (code) {
    case CURLE_OK:
      return HttpEnd::whole;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
      return HttpEnd::unreachable;
    default:
      return HttpEnd::cut;
  }
}

bool is_hopeless(CURLcode code) {
  switch (code) {
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ENGINE_NOTFOUND:
    case CURLE_SSL_ENGINE_INITFAILED:
    case CURLE_OUT_OF_MEMORY:
    case CURLE_NOT_BUILT_IN:
    case CURLE_FAILED_INIT:
    case CURLE_BAD_CONTENT_ENCODING:
      return true;
    default:
      return false;
  }
}

std::string url_part(CURLU* url, CURLUPart part, unsigned flags) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK || !text) {
    return {};
  }
  std::string copy(text);
  curl_free(text);
  return copy;
}

}  // namespace

std::string url_origin(const std::string& url) {
  std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> parsed(
      curl_url(),
      curl_url_cleanup);
  if (!parsed ||
      curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) {
    return {};
  }
  std::string scheme = lower_case(url_part(parsed.get(), CURLUPART_SCHEME, 0));
  std::string host = lower_case(url_part(parsed.get(), CURLUPART_HOST, 0));
  std::string port = url_part(parsed.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT);
  if ((scheme != "http" && scheme != "https") || host.empty()) {
    return {};
  }
  return scheme + "://" + host + ":" + port;
}

std::string url_encode(std::string_view text, bool keep_slashes) {
  std::string out;
  for (char c : text) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
        (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' ||
        c == '~' || (c == '/' && keep_slashes);
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string HttpHead::header(const std::string& lower_case_name) const {
  auto found = headers.find(lower_case_name);
  return found == headers.end() ? std::string() : found->second;
}

struct HttpClient::Session {
  CURL* handle = curl_easy_init();
  HttpTimeouts timeouts;

  ~Session() {
    curl_easy_cleanup(handle);
  }

  void prepare(Exchange& exchange, const HttpRequest& request);
  HttpResult send_once(
      const HttpRequest& request,
      const HttpHandlers& handlers,
      std::string& redirect);
};

HttpClient::HttpClient(const HttpTimeouts& timeouts) {
  start_curl();
  session_ = std::make_unique<Session>();
  session_->timeouts = timeouts;
  if (!session_->handle) {
    throw std::bad_alloc();
  }
}

HttpClient::~HttpClient() = default;

void HttpClient::Session::prepare(
    Exchange& exchange,
    const HttpRequest& request) {
  // Keeps the connections.
  curl_easy_reset(handle);
  curl_easy_setopt(handle, CURLOPT_URL, request.url.c_str());
#if LIBCURL_VERSION_NUM >= 0x075500
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl_easy_setopt(handle, CURLOPT_BUFFERSIZE, 512L << 10);
  curl_easy_setopt(handle, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(handle, CURLOPT_USERAGENT, "mlxx/" MLXX_VERSION);
  curl_easy_setopt(
      handle,
      CURLOPT_CONNECTTIMEOUT,
      static_cast<long>(timeouts.connect.count()));
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(
      handle,
      CURLOPT_LOW_SPEED_TIME,
      static_cast<long>(timeouts.stall.count()));
  if (request.head_only) {
    curl_easy_setopt(handle, CURLOPT_NOBODY, 1L);
  }
  for (const char* name :
       {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"}) {
    if (auto file = environment(name)) {
      curl_easy_setopt(handle, CURLOPT_CAINFO, file->c_str());
      break;
    }
  }
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, receive_header);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, &exchange);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, receive_body);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &exchange);
  curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, tick);
  curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &exchange);
}

HttpResult HttpClient::Session::send_once(
    const HttpRequest& request,
    const HttpHandlers& handlers,
    std::string& redirect) {
  if (url_origin(request.url).empty()) {
    fail(ErrorKind::internal, request.url, "is no http or https URL");
  }
  Exchange exchange;
  exchange.handle = handle;
  exchange.handlers = &handlers;
  exchange.head.url = request.url;
  prepare(exchange, request);
  HeaderList headers;
  // Sizes and offsets are those of the file itself.
  append(headers, "Accept-Encoding: identity");
  if (!request.bearer_token.empty()) {
    append(headers, "Authorization: Bearer " + request.bearer_token);
  }
  if (request.range_start > 0) {
    append(headers, fmt::format("Range: bytes={}-", request.range_start));
  }
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
  std::array<char, CURL_ERROR_SIZE> text{};
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, text.data());
  CURLcode code = curl_easy_perform(handle);
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, nullptr);
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, nullptr);
  if (exchange.thrown) {
    std::rethrow_exception(exchange.thrown);
  }
  std::string trouble = text[0] ? text.data() : curl_easy_strerror(code);
  if (is_hopeless(code)) {
    fail(ErrorKind::internal, request.url, "{}", trouble);
  }
  HttpResult result;
  result.end = classify(code);
  curl_off_t seconds = 0;
  curl_easy_getinfo(handle, CURLINFO_RETRY_AFTER, &seconds);
  if (seconds > 0) {
    exchange.head.retry_after = std::chrono::seconds(seconds);
  }
  if (code == CURLE_OK) {
    char* target = nullptr;
    curl_easy_getinfo(handle, CURLINFO_REDIRECT_URL, &target);
    if (is_redirect(exchange.head.status) && target) {
      redirect = target;
    }
  } else {
    result.trouble = trouble;
  }
  if (redirect.empty() && result.end == HttpEnd::whole) {
    exchange.announce();
  }
  result.head = std::move(exchange.head);
  return result;
}

HttpResult HttpClient::send(
    const HttpRequest& request,
    const HttpHandlers& handlers) {
  HttpRequest next = request;
  std::string origin = url_origin(request.url);
  for (int i = 0; i <= kMaxRedirects; ++i) {
    std::string redirect;
    HttpResult result = session_->send_once(next, handlers, redirect);
    if (redirect.empty()) {
      return result;
    }
    std::string target_origin = url_origin(redirect);
    if (target_origin.empty()) {
      fail(
          ErrorKind::internal,
          next.url,
          "redirects to '{}', which is no http or https URL",
          redirect);
    }
    if (origin.starts_with("https:") && !target_origin.starts_with("https:")) {
      fail(
          ErrorKind::internal,
          next.url,
          "redirects from https to the unprotected {}",
          target_origin);
    }
    if (target_origin != origin) {
      if (!request.leave_origin) {
        if (handlers.on_head) {
          handlers.on_head(result.head);
        }
        return result;
      }
      // For good: a later redirect back does not bring it out again.
      next.bearer_token.clear();
    }
    next.url = redirect;
  }
  fail(
      ErrorKind::internal,
      request.url,
      "redirects more than {} times",
      kMaxRedirects);
}

}  // namespace mlxx::hub
