#include "apps/mlxx/stop_signals.h"

#include <atomic>
#include <cerrno>

#include <poll.h>
#include <unistd.h>

#include "apps/mlxx/exit_codes.h"
#include "apps/mlxx/wake_pipe.h"

namespace mlxx::apps {

namespace {

// A signal handler can reach nothing but globals. Blocking the signals and
// waiting for them would not do: libraries start threads before main().
std::atomic<int> g_signals{0};
static_assert(std::atomic<int>::is_always_lock_free);
std::atomic<int> g_wake_read{-1};
std::atomic<int> g_wake_write{-1};

extern "C" void count_stop_signal(int) {
  int error = errno;
  if (g_signals.fetch_add(1) > 0) {
    _exit(kExitInterrupted);
  }
  [[maybe_unused]] ssize_t written = write(g_wake_write.load(), "", 1);
  errno = error;
}

}  // namespace

StopSignals::StopSignals() {
  auto wake = open_wake_pipe("serve");
  g_wake_read = wake[0];
  g_wake_write = wake[1];
  g_signals = 0;
  struct sigaction action{};
  action.sa_handler = count_stop_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, &previous_term_);
  sigaction(SIGINT, nullptr, &previous_int_);
  // A shell's background jobs are not to hear Ctrl-C.
  if (previous_int_.sa_handler != SIG_IGN) {
    sigaction(SIGINT, &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  sigaction(SIGTERM, &previous_term_, nullptr);
  sigaction(SIGINT, &previous_int_, nullptr);
  close(g_wake_write.exchange(-1));
  close(g_wake_read.exchange(-1));
}

bool StopSignals::wait(std::chrono::milliseconds patience) {
  pollfd wake{g_wake_read, POLLIN, 0};
  poll(&wake, 1, static_cast<int>(patience.count()));
  return g_signals > 0;
}

}  // namespace mlxx::apps
