#include "mlxx/core/memory_budget.h"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <utility>

#include "mlxx/base/error.h"

namespace mlxx {

// What one budget has given out. A tree: the outermost one holds the lock for
// all, counts what is pending, and alone is compared with active memory, which
// cannot be told apart by budgets.
struct MemoryReservation::Ledger {
  Ledger(size_t limit_bytes, MemoryBudget::ActiveMemory active_memory)
      : limit(limit_bytes), active(std::move(active_memory)) {}
  Ledger(size_t limit_bytes, std::shared_ptr<Ledger> outer_ledger)
      : limit(limit_bytes), outer(std::move(outer_ledger)) {}

  Ledger& outermost() {
    Ledger* at = this;
    while (at->outer) {
      at = at->outer.get();
    }
    return *at;
  }
  // Of this ledger alone. The lock is held.
  size_t used() const {
    if (outer) {
      return reserved;
    }
    // Reserved and allocated bytes are active, unless they were borrowed.
    size_t current = active();
    return std::max(reserved, current + std::min(pending, SIZE_MAX - current));
  }
  size_t left() const {
    size_t in_use = used();
    return limit == 0 ? SIZE_MAX : limit - std::min(limit, in_use);
  }
  void check(std::string_view place, size_t bytes) const {
    for (const Ledger* at = this; at; at = at->outer.get()) {
      if (bytes <= at->left()) {
        continue;
      }
      fail(
          ErrorKind::out_of_memory,
          place,
          "{} bytes more do not fit: {} of {} are in use{}",
          bytes,
          at->used(),
          at->limit,
          at->outer ? " in this part of the memory" : "");
    }
  }

  const size_t limit;
  const MemoryBudget::ActiveMemory active;  // of the outermost
  const std::shared_ptr<Ledger> outer;
  std::mutex mutex;    // of the outermost
  size_t pending = 0;  // of the outermost
  size_t reserved = 0;
};

MemoryReservation::MemoryReservation(
    std::shared_ptr<Ledger> ledger,
    size_t bytes)
    : ledger_(std::move(ledger)), bytes_(bytes), pending_(bytes) {}

MemoryReservation::~MemoryReservation() {
  release();
}

MemoryReservation::MemoryReservation(MemoryReservation&& other) noexcept
    : ledger_(std::move(other.ledger_)),
      bytes_(std::exchange(other.bytes_, 0)),
      pending_(std::exchange(other.pending_, 0)) {}

MemoryReservation& MemoryReservation::operator=(
    MemoryReservation&& other) noexcept {
  if (this != &other) {
    release();
    ledger_ = std::move(other.ledger_);
    bytes_ = std::exchange(other.bytes_, 0);
    pending_ = std::exchange(other.pending_, 0);
  }
  return *this;
}

void MemoryReservation::allocated(size_t bytes) {
  if (!ledger_) {
    return;
  }
  Ledger& outermost = ledger_->outermost();
  std::lock_guard lock(outermost.mutex);
  bytes = std::min(bytes, pending_);
  pending_ -= bytes;
  outermost.pending -= bytes;
}

void MemoryReservation::release() {
  if (!ledger_) {
    return;
  }
  {
    Ledger& outermost = ledger_->outermost();
    std::lock_guard lock(outermost.mutex);
    outermost.pending -= pending_;
    for (Ledger* at = ledger_.get(); at; at = at->outer.get()) {
      at->reserved -= bytes_;
    }
  }
  ledger_.reset();
  bytes_ = 0;
  pending_ = 0;
}

MemoryBudget::MemoryBudget(size_t limit_bytes, ActiveMemory active)
    : ledger_(std::make_shared<Ledger>(limit_bytes, std::move(active))) {}

MemoryBudget::MemoryBudget(std::shared_ptr<Ledger> ledger)
    : ledger_(std::move(ledger)) {}

MemoryBudget MemoryBudget::nested(size_t limit_bytes) const {
  return MemoryBudget(std::make_shared<Ledger>(limit_bytes, ledger_));
}

size_t MemoryBudget::limit() const {
  return ledger_->limit;
}

size_t MemoryBudget::reserved() const {
  std::lock_guard lock(ledger_->outermost().mutex);
  return ledger_->reserved;
}

size_t MemoryBudget::available() const {
  std::lock_guard lock(ledger_->outermost().mutex);
  size_t least = SIZE_MAX;
  for (const Ledger* at = ledger_.get(); at; at = at->outer.get()) {
    least = std::min(least, at->left());
  }
  return least;
}

void MemoryBudget::require(std::string_view place, size_t bytes) const {
  std::lock_guard lock(ledger_->outermost().mutex);
  ledger_->check(place, bytes);
}

MemoryReservation MemoryBudget::reserve(std::string_view place, size_t bytes) {
  Ledger& outermost = ledger_->outermost();
  std::lock_guard lock(outermost.mutex);
  ledger_->check(place, bytes);
  // Without a limit nothing else bounds the sum, and the outermost one's is the
  // largest.
  if (bytes > SIZE_MAX - outermost.reserved) {
    fail(
        ErrorKind::out_of_memory,
        place,
        "{} bytes more do not fit: {} are reserved",
        bytes,
        outermost.reserved);
  }
  outermost.pending += bytes;
  for (Ledger* at = ledger_.get(); at; at = at->outer.get()) {
    at->reserved += bytes;
  }
  return MemoryReservation(ledger_, bytes);
}

}  // namespace mlxx
