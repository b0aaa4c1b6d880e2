#pragma once

#include <cstddef>
#include <mutex>
#include <optional>

#include "mlxx/base/json.h"

namespace mlxx::server {

// Messages over one end of a socket pair, each after its length. One thread
// receives, any may send.
class EngineChannel {
 public:
  // Takes the descriptor.
  explicit EngineChannel(int descriptor);
  ~EngineChannel();
  EngineChannel(const EngineChannel&) = delete;
  EngineChannel& operator=(const EngineChannel&) = delete;

  // False once the other side is gone.
  bool send(const Json& message);
  // Nothing at the end.
  std::optional<Json> receive();
  // Ends both directions; receive() returns.
  void shut_down();

 private:
  bool read_exactly(char* bytes, size_t size);

  int descriptor_;
  std::mutex sending_;
};

}  // namespace mlxx::server
