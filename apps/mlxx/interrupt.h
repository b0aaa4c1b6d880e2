#pragma once

#include <csignal>

namespace mlxx::apps {

// While it lives, Ctrl-C sets a flag instead of ending the process, so that a
// verb can stop cleanly. A second Ctrl-C before the flag is cleared ends the
// process at once. One at a time.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  bool is_interrupted() const;
  void clear();

 private:
  struct sigaction previous_{};
};

}  // namespace mlxx::apps
