#include "mlxx/core/profile.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <unordered_set>

#include <mlx/primitives.h>

namespace mlxx {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Whether an operation has still to be run for it.
bool is_pending(const mx::array& array) {
  return array.status() == mx::array::Status::unscheduled &&
      array.has_primitive();
}

// One array for each operation that `outputs` need, inputs first. Waits for
// arrays that are being computed, so that no operation is charged for them.
// Without recursion: a graph may be tens of thousands of operations deep.
std::deque<mx::array> operations_in_order(
    const std::vector<mx::array>& outputs) {
  struct Visit {
    mx::array array;
    size_t next_input = 0;
  };
  std::deque<mx::array> order;
  std::unordered_set<std::uintptr_t> seen;  // arrays, siblings included
  std::vector<Visit> path;
  auto enter = [&](mx::array array) {
    if (!is_pending(array)) {
      if (array.status() != mx::array::Status::unscheduled) {
        array.wait();
      }
      return;
    }
    if (seen.insert(array.id()).second) {
      for (const auto& sibling : array.siblings()) {
        seen.insert(sibling.id());
      }
      path.push_back({std::move(array)});
    }
  };
  for (const auto& output : outputs) {
    enter(output);
    while (!path.empty()) {
      Visit& visit = path.back();
      if (visit.next_input < visit.array.inputs().size()) {
        // A copy: enter() may move the path's elements.
        mx::array input = visit.array.inputs()[visit.next_input++];
        enter(std::move(input));
      } else {
        order.push_back(std::move(visit.array));
        path.pop_back();
      }
    }
  }
  return order;
}

// Broadcast and strided arrays have fewer elements than their shape says.
uint64_t memory_of(const mx::array& array) {
  return std::min<uint64_t>(array.size(), array.data_size()) * array.itemsize();
}

// Evaluates one operation whose inputs are there.
OpTime evaluate(const mx::array& array) {
  OpTime time{.name = array.primitive().name(), .count = 1};
  for (const auto& input : array.inputs()) {
    time.bytes += memory_of(input);
  }
  auto outputs = array.outputs();
  auto start = Clock::now();
  mx::eval(outputs);
  time.seconds = seconds_since(start);
  for (const auto& output : outputs) {
    time.bytes += memory_of(output);
  }
  return time;
}

std::vector<OpTime> sorted(std::map<std::string, OpTime> by_name) {
  std::vector<OpTime> ops;
  for (auto& [name, time] : by_name) {
    ops.push_back(std::move(time));
  }
  std::ranges::stable_sort(ops, [](const OpTime& a, const OpTime& b) {
    return a.seconds > b.seconds;
  });
  return ops;
}

void add_to(std::map<std::string, OpTime>& by_name, const OpTime& time) {
  OpTime& sum =
      by_name.try_emplace(time.name, OpTime{.name = time.name}).first->second;
  sum.count += time.count;
  sum.seconds += time.seconds;
  sum.bytes += time.bytes;
}

}  // namespace

double Profile::seconds() const {
  double sum = 0;
  for (const auto& op : ops) {
    sum += op.seconds;
  }
  return sum;
}

int Profile::count() const {
  int sum = 0;
  for (const auto& op : ops) {
    sum += op.count;
  }
  return sum;
}

void Profile::add(const Profile& other) {
  std::map<std::string, OpTime> by_name;
  for (const auto& time : ops) {
    add_to(by_name, time);
  }
  for (const auto& time : other.ops) {
    add_to(by_name, time);
  }
  ops = sorted(std::move(by_name));
}

Profile profile(const std::vector<mx::array>& outputs) {
  std::map<std::string, OpTime> by_name;
  auto order = operations_in_order(outputs);
  while (!order.empty()) {
    // Let go at once what later operations do not need, so that memory stays
    // what eval() would use.
    add_to(by_name, evaluate(order.front()));
    order.pop_front();
  }
  return {sorted(std::move(by_name))};
}

double profile_overhead() {
  constexpr int kTries = 21;
  mx::array one(1.0f);
  std::vector<double> times;
  for (int i = 0; i < kTries; ++i) {
    times.push_back(profile({mx::stop_gradient(one)}).seconds());
  }
  std::ranges::nth_element(times, times.begin() + kTries / 2);
  return times[kTries / 2];
}

}  // namespace mlxx
