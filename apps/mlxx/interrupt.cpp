#include "apps/mlxx/interrupt.h"

#include <atomic>
#include <cerrno>

#include <poll.h>
#include <unistd.h>

#include "apps/mlxx/exit_codes.h"
#include "apps/mlxx/wake_pipe.h"

namespace mlxx::apps {

namespace {

// A signal handler can reach nothing but globals, and any thread may run it.
std::atomic<int> g_interrupts{0};
static_assert(std::atomic<int>::is_always_lock_free);
// What the handler wakes a waiting reader with; -1 without a scope.
std::atomic<int> g_wake_read{-1};
std::atomic<int> g_wake_write{-1};

extern "C" void count_interrupt(int) {
  int error = errno;
  // The byte first: who sees the count may drain the pipe, and a byte that came
  // later would wake for nothing. A full pipe wakes as well, so the result does
  // not matter.
  [[maybe_unused]] ssize_t written = write(g_wake_write.load(), "", 1);
  if (g_interrupts.fetch_add(1) > 0) {
    _exit(kExitInterrupted);
  }
  errno = error;
}

void drain(int descriptor) {
  char bytes[64];
  while (read(descriptor, bytes, sizeof(bytes)) > 0) {
  }
}

}  // namespace

InterruptScope::InterruptScope() {
  auto wake = open_wake_pipe("interrupt");
  g_wake_read = wake[0];
  g_wake_write = wake[1];
  g_interrupts = 0;
  sigaction(SIGINT, nullptr, &previous_);
  // A shell's background jobs are not to hear Ctrl-C.
  if (previous_.sa_handler == SIG_IGN) {
    return;
  }
  struct sigaction action{};
  action.sa_handler = count_interrupt;
  sigemptyset(&action.sa_mask);
  // No SA_RESTART: a read of the prompt must return.
  sigaction(SIGINT, &action, nullptr);
}

InterruptScope::~InterruptScope() {
  sigaction(SIGINT, &previous_, nullptr);
  close(g_wake_write.exchange(-1));
  close(g_wake_read.exchange(-1));
}

bool InterruptScope::is_interrupted() const {
  return g_interrupts > 0;
}

void InterruptScope::clear() {
  drain(g_wake_read);
  g_interrupts = 0;
}

bool wait_for_input(int descriptor) {
  while (g_interrupts == 0) {
    // poll() passes over a negative descriptor.
    pollfd waiting[] = {
        {.fd = descriptor, .events = POLLIN, .revents = 0},
        {.fd = g_wake_read, .events = POLLIN, .revents = 0}};
    int ready = poll(waiting, 2, -1);
    if (ready > 0 && waiting[1].revents == 0) {
      return true;
    }
    if (ready < 0 && errno != EINTR) {
      return true;  // the read that follows says what is wrong
    }
  }
  return false;
}

}  // namespace mlxx::apps
