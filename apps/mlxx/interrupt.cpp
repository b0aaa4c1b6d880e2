#include "apps/mlxx/interrupt.h"

#include <csignal>

#include "apps/mlxx/exit_codes.h"

#include <unistd.h>

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

void set_handler(void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  // No SA_RESTART: a read of the prompt must return.
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

InterruptScope::InterruptScope() {
  g_interrupts = 0;
  set_handler(count_interrupt);
}

InterruptScope::~InterruptScope() {
  set_handler(SIG_DFL);
}

bool InterruptScope::is_interrupted() const {
  return g_interrupts > 0;
}

void InterruptScope::clear() {
  g_interrupts = 0;
}

}  // namespace mlxx::apps
