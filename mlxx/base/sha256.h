#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <functional>
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

// Of a whole file, read in blocks; `on_block` is called after each. not_found
// if it cannot be opened, bad_file if it cannot be read to its end.
std::string sha256_of_file(
    const std::filesystem::path& path,
    const std::function<void()>& on_block = {});

}  // namespace mlxx
