#include "apps/mlxx/serve_log.h"

#include <ctime>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/json.h"
#include "mlxx/server/http_message.h"

namespace mlxx::apps {

namespace {

constexpr size_t kMaxPath = 256;

std::string time_text(int64_t unix_milliseconds) {
  std::time_t seconds = unix_milliseconds / 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format(
      "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
      parts.tm_year + 1900,
      parts.tm_mon + 1,
      parts.tm_mday,
      parts.tm_hour,
      parts.tm_min,
      parts.tm_sec,
      unix_milliseconds % 1000);
}

}  // namespace

std::string access_line(
    const std::string& format,
    const server::AccessRecord& record,
    int64_t unix_milliseconds) {
  const auto& request = record.request;
  const auto& served = record.served;
  // Without the query, which may hold anything.
  std::string path = server::header_safe(request.path.substr(0, kMaxPath));
  std::string method = server::header_safe(request.method.substr(0, 16));
  int status = served.client_gone ? 499 : served.status;
  if (format == "json") {
    OrderedJson line = {
        {"time", time_text(unix_milliseconds)},
        {"request_id", request.id},
        {"peer", request.peer},
        {"method", method},
        {"path", path},
        {"status", status},
        {"bytes", served.bytes_sent},
        {"seconds", served.seconds}};
    return line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  }
  return fmt::format(
      "{} {} \"{} {}\" {} {} {:.3f}s {}",
      time_text(unix_milliseconds),
      request.peer,
      method,
      path,
      status,
      served.bytes_sent,
      served.seconds,
      request.id);
}

}  // namespace mlxx::apps
