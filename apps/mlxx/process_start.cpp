#include "apps/mlxx/process_start.h"

#include <optional>

#ifdef __APPLE__
#include <sys/sysctl.h>
#include <sys/time.h>
#include <unistd.h>
#else
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

#include <unistd.h>
#endif

namespace mlxx::apps {

namespace {

// Seconds since the process started, if the system says so.
std::optional<double> process_age() {
#ifdef __APPLE__
  int name[] = {CTL_KERN, KERN_PROC, KERN_PROC_PID, getpid()};
  kinfo_proc info{};
  size_t size = sizeof(info);
  timeval now{};
  if (sysctl(name, 4, &info, &size, nullptr, 0) != 0 || size == 0 ||
      gettimeofday(&now, nullptr) != 0) {
    return std::nullopt;
  }
  const timeval& start = info.kp_proc.p_starttime;
  return static_cast<double>(now.tv_sec - start.tv_sec) +
      1e-6 * static_cast<double>(now.tv_usec - start.tv_usec);
#else
  std::ifstream file("/proc/self/stat");
  std::string line;
  timespec now{};
  if (!std::getline(file, line) || clock_gettime(CLOCK_BOOTTIME, &now) != 0) {
    return std::nullopt;
  }
  // The name in parentheses, field 2, may itself hold blanks. The start is
  // field 22, in clock ticks since boot.
  auto name_end = line.rfind(')');
  if (name_end == std::string::npos) {
    return std::nullopt;
  }
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) {
    fields >> field;
  }
  char* end = nullptr;
  double ticks = std::strtod(field.c_str(), &end);
  long rate = sysconf(_SC_CLK_TCK);
  if (!fields || end == field.c_str() || rate <= 0) {
    return std::nullopt;
  }
  return static_cast<double>(now.tv_sec) + 1e-9 * now.tv_nsec -
      ticks / static_cast<double>(rate);
#endif
}

}  // namespace

std::chrono::steady_clock::time_point process_start() {
  using Clock = std::chrono::steady_clock;
  auto now = Clock::now();
  auto age = process_age();
  if (!age || !(*age > 0)) {
    return now;
  }
  return now -
      std::chrono::duration_cast<Clock::duration>(
             std::chrono::duration<double>(*age));
}

}  // namespace mlxx::apps
