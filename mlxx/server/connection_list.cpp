#include "mlxx/server/connection_list.h"

namespace mlxx::server {

ConnectionList::Room ConnectionList::enter(const std::string& peer) {
  std::lock_guard lock(mutex_);
  auto& from_peer = per_peer_[peer];
  // Everybody on this machine shares the name of the socket.
  bool peer_has_room =
      peer == "unix" || from_peer < limits_.max_connections_per_address;
  bool has_room = peer_has_room && served_ < limits_.max_connections;
  auto may_go = [&](const Place& place) {
    return place.room == Room::free && (peer_has_room || place.peer == peer);
  };
  if (has_room || evict_idle(may_go)) {
    ++from_peer;
    ++served_;
    return Room::free;
  }
  if (from_peer == 0) {
    per_peer_.erase(peer);
  }
  auto is_reserved = [](const Place& place) {
    return place.room == Room::reserved;
  };
  if (reserved_ >= limits_.reserved_connections && !evict_idle(is_reserved)) {
    return Room::full;
  }
  ++reserved_;
  return Room::reserved;
}

void ConnectionList::add(
    const std::string& peer,
    Room room,
    std::shared_ptr<Connection> connection) {
  std::lock_guard lock(mutex_);
  open_.emplace(std::move(connection), Place{peer, room});
}

void ConnectionList::leave(
    const std::string& peer,
    Room room,
    const std::shared_ptr<Connection>& connection) {
  std::lock_guard lock(mutex_);
  if (room == Room::reserved) {
    --reserved_;
  } else {
    --served_;
    auto from_peer = per_peer_.find(peer);
    if (from_peer != per_peer_.end() && --from_peer->second == 0) {
      per_peer_.erase(from_peer);
    }
  }
  open_.erase(connection);
  changed_.notify_all();
}

bool ConnectionList::evict_idle(
    const std::function<bool(const Place&)>& may_go) {
  std::shared_ptr<Connection> oldest;
  std::optional<Connection::Clock::time_point> since;
  for (const auto& [connection, place] : open_) {
    if (!may_go(place)) {
      continue;
    }
    auto idle = connection->idle_since();
    if (idle && (!since || *idle < *since)) {
      since = idle;
      oldest = connection;
    }
  }
  return oldest && oldest->evict();
}

size_t ConnectionList::size() const {
  std::lock_guard lock(mutex_);
  return served_ + reserved_;
}

void ConnectionList::close_idle() {
  std::lock_guard lock(mutex_);
  for (const auto& [connection, place] : open_) {
    connection->close_if_idle();
  }
}

void ConnectionList::close_all() {
  std::lock_guard lock(mutex_);
  for (const auto& [connection, place] : open_) {
    connection->close();
  }
}

bool ConnectionList::wait_until_empty(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, patience, [&] {
    return served_ + reserved_ == 0;
  });
}

}  // namespace mlxx::server
