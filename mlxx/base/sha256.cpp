#include "mlxx/base/sha256.h"

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

}  // namespace mlxx
