#include "mlxx/base/sha256.h"

#include <fstream>
#include <vector>

#include <openssl/evp.h>

#include "mlxx/base/error.h"

namespace mlxx {

struct Sha256::Context {
  EVP_MD_CTX* handle = EVP_MD_CTX_new();
  ~Context() {
    EVP_MD_CTX_free(handle);
  }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  if (!context_->handle ||
      EVP_DigestInit_ex(context_->handle, EVP_sha256(), nullptr) != 1) {
    fail(ErrorKind::internal, "sha256", "OpenSSL offers no SHA-256");
  }
}

Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(context_->handle, bytes.data(), bytes.size());
}

std::string Sha256::hex() {
  std::array<unsigned char, 32> digest{};
  EVP_DigestFinal_ex(context_->handle, digest.data(), nullptr);
  std::string out;
  for (unsigned char byte : digest) {
    out += fmt::format("{:02x}", byte);
  }
  return out;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

std::string sha256_of_file(
    const std::filesystem::path& path,
    const std::function<void()>& on_block) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    fail(ErrorKind::not_found, path.string(), "cannot be read");
  }
  Sha256 hash;
  std::vector<char> block(size_t{1} << 20);
  while (file) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    hash.update(std::as_bytes(
        std::span(block.data(), static_cast<size_t>(file.gcount()))));
    if (on_block) {
      on_block();
    }
  }
  if (!file.eof()) {
    fail(ErrorKind::bad_file, path.string(), "cannot be read to its end");
  }
  return hash.hex();
}

}  // namespace mlxx
