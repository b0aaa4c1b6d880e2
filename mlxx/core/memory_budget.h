#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "mlxx/core/mlx.h"

namespace mlxx {

class MemoryBudget;

// Bytes that a budget keeps for its holder, and for the budgets around it;
// given back when it dies. Movable. It may outlive the budget.
class MemoryReservation {
 public:
  // Holds nothing.
  MemoryReservation() = default;
  ~MemoryReservation();
  MemoryReservation(MemoryReservation&& other) noexcept;
  MemoryReservation& operator=(MemoryReservation&& other) noexcept;

  size_t bytes() const {
    return bytes_;
  }
  // Says that `bytes` of it have been allocated, so that they are not counted
  // twice, as reserved and as MLX's active memory. At most what is left counts.
  void allocated(size_t bytes);
  // Gives all back now.
  void release();

 private:
  friend class MemoryBudget;
  struct Ledger;
  MemoryReservation(std::shared_ptr<Ledger> ledger, size_t bytes);

  std::shared_ptr<Ledger> ledger_;
  size_t bytes_ = 0;
  size_t pending_ = 0;  // not allocated yet
};

// A limit for the memory of arrays, which holds on every backend as far as code
// that is about to allocate asks first. MLX's CPU backend ignores limits of its
// own and writes to address 0 when an allocation fails, so there this is the
// one guard; on a GPU make the limit MLX's too, with mx::set_memory_limit, as
// defence in depth.
//
// In use are MLX's active memory, whoever allocated it, and what is reserved
// and not allocated yet. Thread-safe.
class MemoryBudget {
 public:
  using ActiveMemory = std::function<size_t()>;

  // 0 means no limit.
  explicit MemoryBudget(
      size_t limit_bytes,
      ActiveMemory active = mx::get_active_memory);

  // A part of this budget with a lower limit of its own: only what is reserved
  // there counts against that limit, and everything reserved there also counts
  // here. 0 means no limit but the outer ones.
  MemoryBudget nested(size_t limit_bytes) const;

  size_t limit() const;
  // What is reserved here and in nested budgets, allocated or not.
  size_t reserved() const;
  // What could be reserved now; SIZE_MAX without any limit.
  size_t available() const;

  // out_of_memory, with the place and the numbers of the limit that is in the
  // way, if `bytes` more would not fit.
  void require(std::string_view place, size_t bytes) const;
  // The same, and keeps them.
  MemoryReservation reserve(std::string_view place, size_t bytes);

 private:
  using Ledger = MemoryReservation::Ledger;
  explicit MemoryBudget(std::shared_ptr<Ledger> ledger);

  std::shared_ptr<Ledger> ledger_;
};

}  // namespace mlxx
