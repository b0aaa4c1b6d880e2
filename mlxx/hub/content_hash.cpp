#include "mlxx/hub/content_hash.h"

#include <algorithm>
#include <array>

#include <openssl/evp.h>

#include "mlxx/base/error.h"

namespace mlxx::hub {

struct ContentHasher::Context {
  EVP_MD_CTX* handle = EVP_MD_CTX_new();
  ~Context() {
    EVP_MD_CTX_free(handle);
  }
};

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
}

ContentHash parse_content_hash(const std::string& hex, std::string_view place) {
  if (!is_hex(hex) || (hex.size() != 64 && hex.size() != 40)) {
    fail(
        ErrorKind::bad_file,
        place,
        "the server gives no hash to check the file with, but '{}'",
        hex.substr(0, 100));
  }
  return {
      hex.size() == 64 ? ContentHash::Kind::sha256
                       : ContentHash::Kind::git_blob,
      hex};
}

ContentHasher::ContentHasher(ContentHash::Kind kind, uint64_t size)
    : context_(std::make_unique<Context>()) {
  const EVP_MD* algorithm =
      kind == ContentHash::Kind::sha256 ? EVP_sha256() : EVP_sha1();
  if (!context_->handle ||
      EVP_DigestInit_ex(context_->handle, algorithm, nullptr) != 1) {
    fail(ErrorKind::internal, "hash", "OpenSSL offers no SHA-256 or SHA-1");
  }
  if (kind == ContentHash::Kind::git_blob) {
    std::string head = fmt::format("blob {}", size);
    // With the zero at its end.
    update(std::as_bytes(std::span(head.c_str(), head.size() + 1)));
  }
}

ContentHasher::~ContentHasher() = default;
ContentHasher::ContentHasher(ContentHasher&&) noexcept = default;
ContentHasher& ContentHasher::operator=(ContentHasher&&) noexcept = default;

void ContentHasher::update(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(context_->handle, bytes.data(), bytes.size());
}

std::string ContentHasher::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_DigestFinal_ex(context_->handle, digest.data(), &size);
  std::string out;
  for (unsigned i = 0; i < size; ++i) {
    out += fmt::format("{:02x}", digest[i]);
  }
  return out;
}

}  // namespace mlxx::hub
