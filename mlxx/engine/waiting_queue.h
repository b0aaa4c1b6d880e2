#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mlxx::engine {

// In which order requests that wait get their turn. Higher priorities first;
// equal ones share by the tokens that their tenants had so far (a virtual
// token counter for each tenant, as in "Fairness in Serving Large Language
// Models", Sheng et al. 2024); one tenant's in the order they came. Nobody
// starves: after kPassedOver turns of higher priorities the highest lower one
// that waits gets one.
class WaitingQueue {
 public:
  static constexpr int kPassedOver = 16;

  struct Entry {
    uint64_t id = 0;
    int priority = 0;
    std::string tenant;
  };

  void push(const Entry& entry);
  // Whose turn it is. The same until something is pushed, taken or charged.
  std::optional<Entry> front() const;
  // Takes the front out.
  void pop();
  // Wherever it stands; false if it is not here.
  bool remove(uint64_t id);
  // `tokens` were computed for a tenant.
  void charge(const std::string& tenant, uint64_t tokens);

  size_t size() const {
    return size_;
  }
  // In no particular order.
  std::vector<uint64_t> ids() const;

 private:
  struct Level {
    std::map<std::string, std::deque<uint64_t>> tenants;  // none is empty
    int passed_over = 0;
  };
  using Levels = std::map<int, Level, std::greater<>>;

  Levels::const_iterator next_level() const;
  std::map<std::string, std::deque<uint64_t>>::const_iterator next_tenant(
      const Level& level) const;
  uint64_t served(const std::string& tenant) const;
  bool waits(const std::string& tenant) const;
  void erase(int priority, const std::string& tenant);

  Levels levels_;  // none is empty
  // Tokens that each tenant had; who comes (back) begins where the least
  // served of those who wait stands, so that idle times are no credit.
  std::map<std::string, uint64_t> served_;
  uint64_t floor_ = 0;  // the counter of whoever's turn was last
  size_t size_ = 0;
};

}  // namespace mlxx::engine
