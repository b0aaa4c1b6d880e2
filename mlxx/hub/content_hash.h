#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace mlxx::hub {

// What Git names a file's content by. The hub gives one for every file, and
// Hugging Face's cache uses its digits as the name of the blob.
struct ContentHash {
  enum class Kind {
    sha256,    // files in Git LFS
    git_blob,  // SHA-1 of "blob SIZE\0" and the content: all others
  };
  Kind kind = Kind::sha256;
  std::string hex;  // 64 or 40 lower-case digits
};

// From 64 or 40 hexadecimal digits; bad_file, naming `place`, for another text.
ContentHash parse_content_hash(const std::string& hex, std::string_view place);

bool is_hex(std::string_view text);

// The digits of `kind` over a stream of bytes whose total is known before.
class ContentHasher {
 public:
  ContentHasher(ContentHash::Kind kind, uint64_t size);
  ~ContentHasher();
  ContentHasher(ContentHasher&&) noexcept;
  ContentHasher& operator=(ContentHasher&&) noexcept;

  void update(std::span<const std::byte> bytes);
  // Once.
  std::string hex();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace mlxx::hub
