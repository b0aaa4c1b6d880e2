#pragma once

#include <functional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace mlxx {

enum class LogLevel { debug, info, warning, error };

// The library never prints: it hands each line to the sink that the program
// set, from whatever thread. Without a sink the lines are dropped.
using LogSink = std::function<void(LogLevel, std::string_view)>;

// Replaces the sink (an empty function removes it). Thread-safe.
void set_log_sink(LogSink sink);

void log_line(LogLevel level, std::string_view line);

template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::debug, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace mlxx
