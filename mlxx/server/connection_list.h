#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "mlxx/server/connection.h"

namespace mlxx::server {

// The open connections, and whether there is room for one more. Thread-safe.
class ConnectionList {
 public:
  explicit ConnectionList(const HttpLimits& limits) : limits_(limits) {}

  enum class Room { full, reserved, free };
  // Counts it in unless `full`. When all is taken, the connection that has
  // waited longest without a request has to make room: for an address that has
  // its share already, one of its own.
  Room enter(const std::string& peer);
  void add(
      const std::string& peer,
      Room room,
      std::shared_ptr<Connection> connection);
  // Undoes enter() and add().
  void leave(
      const std::string& peer,
      Room room,
      const std::shared_ptr<Connection>& connection);

  size_t size() const;
  void close_idle();
  void close_all();
  // False if some are left after that time.
  bool wait_until_empty(std::chrono::milliseconds patience);

 private:
  struct Place {
    std::string peer;
    Room room;
  };
  // Of those that `may_go` says.
  bool evict_idle(const std::function<bool(const Place&)>& may_go);

  const HttpLimits& limits_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::shared_ptr<Connection>, Place> open_;
  std::map<std::string, size_t> per_peer_;
  size_t served_ = 0;
  size_t reserved_ = 0;
};

}  // namespace mlxx::server
