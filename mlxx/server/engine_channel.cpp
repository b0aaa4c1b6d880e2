#include "mlxx/server/engine_channel.h"

#include <cerrno>
#include <cstring>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

namespace mlxx::server {

namespace {

constexpr uint32_t kMaxMessage = uint32_t{1} << 30;

#ifdef MSG_NOSIGNAL
constexpr int kSendFlags = MSG_NOSIGNAL;
#else
constexpr int kSendFlags = 0;  // the program ignores SIGPIPE
#endif

}  // namespace

EngineChannel::EngineChannel(int descriptor) : descriptor_(descriptor) {}

EngineChannel::~EngineChannel() {
  close(descriptor_);
}

void EngineChannel::shut_down() {
  shutdown(descriptor_, SHUT_RDWR);
}

bool EngineChannel::send(const Json& message) {
  std::vector<uint8_t> bytes(sizeof(uint32_t));
  Json::to_cbor(message, bytes);
  auto size = static_cast<uint32_t>(bytes.size() - sizeof(uint32_t));
  std::memcpy(bytes.data(), &size, sizeof(size));
  std::lock_guard lock(sending_);
  for (size_t done = 0; done < bytes.size();) {
    ssize_t sent = ::send(
        descriptor_,
        bytes.data() + done,
        bytes.size() - done,
        kSendFlags);
    if (sent < 0 && errno == EINTR) {
      continue;
    }
    if (sent <= 0) {
      return false;
    }
    done += static_cast<size_t>(sent);
  }
  return true;
}

bool EngineChannel::read_exactly(char* bytes, size_t size) {
  while (size > 0) {
    ssize_t count = recv(descriptor_, bytes, size, 0);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return false;
    }
    bytes += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

std::optional<Json> EngineChannel::receive() {
  uint32_t size = 0;
  if (!read_exactly(reinterpret_cast<char*>(&size), sizeof(size)) ||
      size > kMaxMessage) {
    return std::nullopt;
  }
  std::vector<char> bytes(size);
  if (!read_exactly(bytes.data(), size)) {
    return std::nullopt;
  }
  Json message = Json::from_cbor(bytes, true, false);
  // What is cut off in the middle comes from a process that is dying.
  return message.is_discarded() ? std::nullopt : std::optional(message);
}

}  // namespace mlxx::server
