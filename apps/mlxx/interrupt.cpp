#include "apps/mlxx/interrupt.h"

#include <unistd.h>

#include "apps/mlxx/exit_codes.h"

namespace mlxx::apps {

namespace {

// A signal handler can reach nothing but a global.
volatile std::sig_atomic_t g_interrupts = 0;

extern "C" void count_interrupt(int) {
  g_interrupts = g_interrupts + 1;
  if (g_interrupts > 1) {
    _exit(kExitInterrupted);
  }
}

}  // namespace

InterruptScope::InterruptScope() {
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
}

bool InterruptScope::is_interrupted() const {
  return g_interrupts > 0;
}

void InterruptScope::clear() {
  g_interrupts = 0;
}

}  // namespace mlxx::apps
