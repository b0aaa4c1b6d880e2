#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mlxx::hub {

// How far a pull is.
struct PullProgress {
  std::string file;    // what is being got now
  uint64_t done = 0;   // bytes of all files
  uint64_t total = 0;  // 0: not known
  // Of `done`, what was here before this pull: it counts for no rate.
  uint64_t resumed = 0;
};

enum class ProgressStyle {
  terminal,  // one line that is written again and again, about ten times a
             // second
  plain,     // a line every few seconds, for logs
};

// Makes a pull's progress into text, with rate and time left. Prints nothing
// and reads no clock: the caller does both.
class ProgressMeter {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `width` is the terminal's columns.
  ProgressMeter(ProgressStyle style, int width, Time start);

  // What to write now, if anything. On a terminal it starts with a carriage
  // return and clears the rest of the line; else it is a whole line.
  std::optional<std::string> update(const PullProgress& progress, Time now);
  // Text that ends the line on a terminal, so that other text can follow.
  std::string clear() const;

 private:
  void measure(const PullProgress& progress, Time now);
  std::string line(const PullProgress& progress) const;

  struct Sample {
    Time time;
    uint64_t bytes;
  };

  ProgressStyle style_;
  size_t width_;
  Time last_shown_;
  bool shown_ = false;
  std::string last_file_;
  std::vector<Sample> samples_;  // the last few seconds, oldest first
  double rate_ = 0;              // bytes per second
};

// "92.9 MB": decimal units, as disks and networks are sold.
std::string format_bytes(uint64_t bytes);
// "5 s", "3 min 20 s", "2 h 5 min".
std::string format_duration(std::chrono::seconds duration);

}  // namespace mlxx::hub
