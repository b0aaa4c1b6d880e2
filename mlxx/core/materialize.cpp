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

}  // namespace mlxx
