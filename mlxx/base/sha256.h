#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace mlxx {

// SHA-256 over a stream of bytes (OpenSSL's implementation).
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void update(std::span<const std::byte> bytes);
  // 64 lower-case hexadecimal digits. The object may not be used after it.
  std::string hex();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace mlxx
