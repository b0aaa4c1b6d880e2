#include "mlxx/core/materialize.h"

namespace mlxx {

Materializer::Materializer(size_t chunk_bytes, MaterializeProgress progress)
    : chunk_bytes_(chunk_bytes), progress_(std::move(progress)) {}

void Materializer::add(const mx::array& value) {
  pending_.push_back(value);
  pending_bytes_ += value.nbytes();
  if (pending_bytes_ >= chunk_bytes_) {
    finish();
  }
}

void Materializer::finish() {
  if (pending_.empty()) {
    return;
  }
  mx::eval(std::move(pending_));
  pending_.clear();
  done_bytes_ += pending_bytes_;
  pending_bytes_ = 0;
  if (progress_) {
    progress_(done_bytes_);
  }
}

mx::array materialize_copy(const mx::array& value, mx::StreamOrDevice s) {
  mx::array source = value.ndim() == 0 ? mx::reshape(value, {1}, s) : value;
  // Concatenating always writes to a new buffer of the exact size, and knows
  // its shape also in a shapeless trace, where only the first array's counts.
  mx::Shape none = source.shape();
  none[0] = 0;
  mx::array copy =
      mx::concatenate({source, mx::zeros(none, value.dtype(), s)}, 0, s);
  return value.ndim() == 0 ? mx::reshape(copy, {}, s) : copy;
}

}  // namespace mlxx
