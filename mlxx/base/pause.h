#pragma once

namespace mlxx {

// Tells the processor that this thread waits for another one.
inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace mlxx
