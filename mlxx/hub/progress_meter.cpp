#include "mlxx/hub/progress_meter.h"

#include <algorithm>

#include <fmt/format.h>

#include "mlxx/base/utf8.h"

namespace mlxx::hub {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Of the terminal's line, and between plain lines.
constexpr auto kRedraw = milliseconds(100);
constexpr auto kPlainInterval = seconds(5);
// The rate is that of so long; a shorter time says nothing.
constexpr auto kWindow = seconds(8);
constexpr double kMinSeconds = 0.5;
constexpr double kMaxSecondsLeft = 1e7;

double seconds_between(ProgressMeter::Time begin, ProgressMeter::Time end) {
  return std::chrono::duration<double>(end - begin).count();
}

// The end of a long name tells more than its start.
std::string shorten(const std::string& name, size_t width) {
  if (name.size() <= width) {
    return name;
  }
  if (width < 4) {
    return {};
  }
  std::string tail = name.substr(name.size() - (width - 3));
  return "..." + replace_invalid_utf8(tail);
}

}  // namespace

std::string format_bytes(uint64_t bytes) {
  if (bytes < 1000) {
    return fmt::format("{} B", bytes);
  }
  double value = static_cast<double>(bytes);
  constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  size_t unit = 0;
  value /= 1000;
  // 999.95 would be shown as 1000.0.
  while (value >= 999.95 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string format_duration(seconds duration) {
  auto count = std::max<int64_t>(0, duration.count());
  if (count < 60) {
    return fmt::format("{} s", count);
  }
  if (count < 3600) {
    return fmt::format("{} min {} s", count / 60, count % 60);
  }
  return fmt::format("{} h {} min", count / 3600, count % 3600 / 60);
}

ProgressMeter::ProgressMeter(ProgressStyle style, int width, Time start)
    : style_(style),
      width_(static_cast<size_t>(std::max(width, 20))),
      last_shown_(start) {}

void ProgressMeter::measure(const PullProgress& progress, Time now) {
  uint64_t fetched =
      progress.done > progress.resumed ? progress.done - progress.resumed : 0;
  if (!samples_.empty() && fetched < samples_.back().bytes) {
    samples_.clear();  // a file was started over
  }
  samples_.push_back({now, fetched});
  auto old = std::find_if(samples_.begin(), samples_.end(), [&](auto& sample) {
    return now - sample.time <= kWindow;
  });
  // One older sample stays, so that there is always something to compare with.
  if (old - samples_.begin() > 1) {
    samples_.erase(samples_.begin(), old - 1);
  }
  double elapsed = seconds_between(samples_.front().time, now);
  rate_ = elapsed < kMinSeconds
      ? 0
      : static_cast<double>(fetched - samples_.front().bytes) / elapsed;
}

std::string ProgressMeter::line(const PullProgress& progress) const {
  std::string numbers = format_bytes(progress.done);
  if (progress.total > 0) {
    double percent = 100.0 * static_cast<double>(progress.done) /
        static_cast<double>(progress.total);
    numbers = fmt::format(
        "{:3.0f} %  {} of {}",
        // 100 only when nothing is missing.
        progress.done < progress.total ? std::min(percent, 99.0) : 100.0,
        numbers,
        format_bytes(progress.total));
  }
  if (rate_ > 0) {
    numbers +=
        fmt::format("  {}/s", format_bytes(static_cast<uint64_t>(rate_)));
    double left =
        static_cast<double>(
            progress.total - std::min(progress.done, progress.total)) /
        rate_;
    if (progress.total > progress.done && left < kMaxSecondsLeft) {
      numbers += fmt::format(
          "  {} left",
          format_duration(seconds(static_cast<int64_t>(left + 0.5))));
    }
  }
  if (style_ == ProgressStyle::plain) {
    return fmt::format("{}  {}", numbers, escape_line(progress.file));
  }
  // A line that wraps could not be written over.
  size_t room = width_ - 1;
  if (numbers.size() + 2 >= room) {
    return numbers.substr(0, room);
  }
  std::string name =
      shorten(escape_line(progress.file), room - numbers.size() - 2);
  return name.empty() ? numbers : numbers + "  " + name;
}

std::optional<std::string> ProgressMeter::update(
    const PullProgress& progress,
    Time now) {
  measure(progress, now);
  auto interval = style_ == ProgressStyle::terminal
      ? std::chrono::steady_clock::duration(kRedraw)
      : std::chrono::steady_clock::duration(kPlainInterval);
  if (now - last_shown_ < interval) {
    return std::nullopt;
  }
  last_shown_ = now;
  shown_ = true;
  std::string text = line(progress);
  return style_ == ProgressStyle::terminal ? "\r" + text + "\x1b[K"
                                           : text + "\n";
}

std::string ProgressMeter::clear() const {
  return style_ == ProgressStyle::terminal && shown_ ? "\r\x1b[K" : "";
}

}  // namespace mlxx::hub
