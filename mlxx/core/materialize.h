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

// A copy of `value` that shares nothing with it: row-contiguous, in a buffer of
// its own that is no larger than its bytes, so that a large buffer of which
// `value` is a part (or a mapped file) can be let go. Same values, bit for bit,
// dtype and shape, 0-d and empty included. Lazy and differentiable (the
// identity in every direction).
//
// Only where that independence is needed: mx::copy shares the buffer, and so
// does mx::contiguous when it finds the values dense enough already. Inside a
// compiled function, shapeless or not, it copies at each call.
mx::array materialize_copy(const mx::array& value, mx::StreamOrDevice s = {});

}  // namespace mlxx
