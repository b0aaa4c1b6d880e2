#include "mlxx/capi/delta_queue.h"

#include <utility>

namespace mlxx::capi {

bool DeltaQueue::begin() {
  std::lock_guard lock(mutex_);
  is_begun_ = !is_cancelled_;
  return is_begun_;
}

// Notifications come under the lock: after finish() the asking thread may
// destroy the queue as soon as it gets the lock.
bool DeltaQueue::push(std::string text) {
  std::lock_guard lock(mutex_);
  if (is_cancelled_) {
    return false;
  }
  pieces_.push_back(std::move(text));
  changed_.notify_one();
  return true;
}

void DeltaQueue::finish(std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  is_finished_ = true;
  error_ = std::move(error);
  changed_.notify_one();
}

std::optional<std::string> DeltaQueue::pop() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return will_end() || !pieces_.empty(); });
  if (pieces_.empty()) {
    return std::nullopt;
  }
  std::string text = std::move(pieces_.front());
  pieces_.pop_front();
  return text;
}

void DeltaQueue::cancel() {
  std::lock_guard lock(mutex_);
  is_cancelled_ = true;
  changed_.notify_one();
}

bool DeltaQueue::is_cancelled() {
  std::lock_guard lock(mutex_);
  return is_cancelled_;
}

void DeltaQueue::join() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return will_end(); });
  if (error_) {
    std::rethrow_exception(error_);
  }
}

}  // namespace mlxx::capi
