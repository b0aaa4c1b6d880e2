#include "apps/mlxx/stop_signals.h"

#include <cerrno>

#include <unistd.h>

#include "apps/mlxx/exit_codes.h"

namespace mlxx::apps {

namespace {

extern "C" void end_at_once(int) {
  _exit(kExitInterrupted);
}

}  // namespace

StopSignals::StopSignals() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals_, &previous_);
}

StopSignals::~StopSignals() {
  pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

bool StopSignals::wait(std::chrono::milliseconds patience) {
  // sigtimedwait() is not on macOS: a look now and then costs nothing.
  constexpr auto kPause = std::chrono::milliseconds(20);
  auto end = std::chrono::steady_clock::now() + patience;
  for (;;) {
    sigset_t pending;
    sigpending(&pending);
    if (sigismember(&pending, SIGTERM) || sigismember(&pending, SIGINT)) {
      int signal = 0;
      return sigwait(&signals_, &signal) == 0;
    }
    if (std::chrono::steady_clock::now() >= end) {
      return false;
    }
    usleep(
        std::chrono::duration_cast<std::chrono::microseconds>(kPause).count());
  }
}

void StopSignals::let_the_next_one_kill() {
  struct sigaction action{};
  action.sa_handler = end_at_once;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
}

}  // namespace mlxx::apps
