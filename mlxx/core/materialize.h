#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "mlxx/core/mlx.h"

namespace mlxx {

// Bytes evaluated so far. May throw (ErrorKind::cancelled) to stop.
using MaterializeProgress = std::function<void(uint64_t done_bytes)>;

// Evaluates arrays in chunks of bounded size. One evaluation of a whole large
// model trips Metal's command-buffer watchdog, and holds every temporary of
// the conversion at once.
class Materializer {
 public:
  // chunk_bytes 0 evaluates each array by itself.
  explicit Materializer(size_t chunk_bytes, MaterializeProgress progress = {});

  void add(const mx::array& value);
  // Evaluates what is left.
  void finish();

 private:
  size_t chunk_bytes_;
  MaterializeProgress progress_;
  std::vector<mx::array> pending_;
  size_t pending_bytes_ = 0;
  uint64_t done_bytes_ = 0;
};

}  // namespace mlxx
