#include "mlxx/server/random_id.h"

#include <array>
#include <iterator>

#include <fmt/format.h>
#include <openssl/rand.h>

#include "mlxx/base/error.h"

namespace mlxx::server {

std::string random_id(std::string_view prefix) {
  std::array<unsigned char, 16> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
    fail(ErrorKind::internal, "server", "the system gives no random numbers");
  }
  std::string id(prefix);
  for (auto byte : bytes) {
    fmt::format_to(std::back_inserter(id), "{:02x}", byte);
  }
  return id;
}

}  // namespace mlxx::server
