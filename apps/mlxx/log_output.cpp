#include "apps/mlxx/log_output.h"

#include <memory>
#include <optional>
#include <vector>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "apps/mlxx/console.h"
#include "mlxx/base/closest_match.h"
#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/base/utf8.h"

namespace mlxx::apps {

namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

spdlog::level::level_enum parse_level(
    const std::string& name,
    const char* place) {
  const std::vector<std::pair<std::string, spdlog::level::level_enum>> kLevels =
      {{"debug", spdlog::level::debug},
       {"info", spdlog::level::info},
       {"warning", spdlog::level::warn},
       {"error", spdlog::level::err},
       {"off", spdlog::level::off}};
  std::vector<std::string> names;
  for (const auto& [known, level] : kLevels) {
    if (known == name) {
      return level;
    }
    names.push_back(known);
  }
  auto meant = closest_match(name, names);
  fail(
      ErrorKind::invalid_request,
      place,
      "there is no level \"{}\", {}",
      name,
      meant ? "did you mean " + *meant + "?"
            : std::string("use one of ") + kLogLevels);
}

}  // namespace

void start_log_output(const std::string& level) {
  auto chosen = !level.empty()
      ? parse_level(level, "--log-level")
      : parse_level(environment("MLXX_LOG").value_or("warning"), "MLXX_LOG");
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(
      use_color(Stream::err) ? spdlog::color_mode::always
                             : spdlog::color_mode::never);
  auto logger = std::make_shared<spdlog::logger>("mlxx", sink);
  logger->set_level(chosen);
  logger->set_pattern("%n: %^%l:%$ %v");
  set_log_sink([logger](LogLevel line_level, std::string_view line) {
    logger->log(to_spdlog(line_level), "{}", escape_line(line));
  });
}

void stop_log_output() {
  set_log_sink({});
}

}  // namespace mlxx::apps
