#include "mlxx/base/log.h"

#include <memory>
#include <mutex>

#include "mlxx/base/utf8.h"

namespace mlxx {

namespace {

// A process has one log, so this is the one piece of global state in base/.
struct Log {
  std::mutex mutex;
  std::shared_ptr<const LogSink> sink;
};

Log& global_log() {
  static Log log;
  return log;
}

}  // namespace

void set_log_sink(LogSink sink) {
  auto shared =
      sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
  std::lock_guard lock(global_log().mutex);
  global_log().sink = std::move(shared);
}

void log_line(LogLevel level, std::string_view line) {
  std::shared_ptr<const LogSink> sink;
  {
    std::lock_guard lock(global_log().mutex);
    sink = global_log().sink;
  }
  if (sink) {
    (*sink)(level, escape_line(line));
  }
}

}  // namespace mlxx
