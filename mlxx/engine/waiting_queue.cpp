#include "mlxx/engine/waiting_queue.h"

#include <algorithm>

namespace mlxx::engine {

namespace {

// Tenants whose counters are kept although nothing of theirs waits.
constexpr size_t kMaxTenants = 4096;

}  // namespace

uint64_t WaitingQueue::served(const std::string& tenant) const {
  auto found = served_.find(tenant);
  return found == served_.end() ? floor_ : found->second;
}

bool WaitingQueue::waits(const std::string& tenant) const {
  return std::any_of(levels_.begin(), levels_.end(), [&](const auto& level) {
    return level.second.tenants.contains(tenant);
  });
}

void WaitingQueue::push(const Entry& entry) {
  if (!waits(entry.tenant)) {
    if (served_.size() >= kMaxTenants) {
      std::erase_if(served_, [&](const auto& known) {
        return known.second <= floor_ && !waits(known.first);
      });
    }
    uint64_t& counter = served_[entry.tenant];
    counter = std::max(counter, floor_);
  }
  levels_[entry.priority].tenants[entry.tenant].push_back(entry.id);
  ++size_;
}

WaitingQueue::Levels::const_iterator WaitingQueue::next_level() const {
  for (auto level = levels_.begin(); level != levels_.end(); ++level) {
    if (level->second.passed_over >= kPassedOver) {
      return level;
    }
  }
  return levels_.begin();
}

std::map<std::string, std::deque<uint64_t>>::const_iterator
WaitingQueue::next_tenant(const Level& level) const {
  return std::min_element(
      level.tenants.begin(),
      level.tenants.end(),
      [&](const auto& a, const auto& b) {
        uint64_t had_a = served(a.first);
        uint64_t had_b = served(b.first);
        // As much for both: who came first.
        return had_a != had_b ? had_a < had_b
                              : a.second.front() < b.second.front();
      });
}

std::optional<WaitingQueue::Entry> WaitingQueue::front() const {
  if (levels_.empty()) {
    return std::nullopt;
  }
  auto level = next_level();
  auto tenant = next_tenant(level->second);
  return Entry{tenant->second.front(), level->first, tenant->first};
}

void WaitingQueue::erase(int priority, const std::string& tenant) {
  auto level = levels_.find(priority);
  auto queue = level->second.tenants.find(tenant);
  if (queue->second.empty()) {
    level->second.tenants.erase(queue);
  }
  if (level->second.tenants.empty()) {
    levels_.erase(level);
  }
  --size_;
}

void WaitingQueue::pop() {
  auto entry = front();
  if (!entry) {
    return;
  }
  for (auto& [priority, level] : levels_) {
    if (priority < entry->priority) {
      ++level.passed_over;
    }
  }
  Level& level = levels_[entry->priority];
  level.passed_over = 0;
  floor_ = std::max(floor_, served(entry->tenant));
  level.tenants[entry->tenant].pop_front();
  erase(entry->priority, entry->tenant);
}

bool WaitingQueue::remove(uint64_t id) {
  for (auto& [priority, level] : levels_) {
    for (auto& [tenant, queue] : level.tenants) {
      auto found = std::find(queue.begin(), queue.end(), id);
      if (found != queue.end()) {
        queue.erase(found);
        erase(priority, std::string(tenant));
        return true;
      }
    }
  }
  return false;
}

void WaitingQueue::charge(const std::string& tenant, uint64_t tokens) {
  auto found = served_.find(tenant);
  if (found != served_.end()) {
    found->second += tokens;
  }
}

std::vector<uint64_t> WaitingQueue::ids() const {
  std::vector<uint64_t> ids;
  for (const auto& [priority, level] : levels_) {
    for (const auto& [tenant, queue] : level.tenants) {
      ids.insert(ids.end(), queue.begin(), queue.end());
    }
  }
  return ids;
}

}  // namespace mlxx::engine
