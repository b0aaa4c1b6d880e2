#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "mlxx/text/tokenizer.h"

namespace mlxx::text {

// Tokenizers in their packed form, one file each, named after the digest of
// what they were made from: a changed tokenizer has another name. Nothing in
// the folder is trusted: a file that is damaged, cut short or not ours counts
// as none and is written anew. A folder that cannot be written is no error
// either; loading is then as slow as without.
class TokenizerCache {
 public:
  // A few large vocabularies. What was not used for longest goes first.
  static constexpr uint64_t kMostBytes = uint64_t{256} << 20;

  explicit TokenizerCache(
      std::filesystem::path folder,
      uint64_t most_bytes = kMostBytes);

  // MLXX_HOME/tokenizers; absent if MLXX_TOKENIZER_CACHE=0 or no home is
  // known. invalid_request if the variable is neither.
  static std::optional<TokenizerCache> from_environment();

  // The tokenizer whose source has this digest: from the folder, else from
  // `make_json`, the text of its tokenizer.json, and then kept. An empty
  // digest is not looked up. Errors: those of make_json and of
  // Tokenizer::from_json.
  std::shared_ptr<const Tokenizer> load(
      const std::string& digest,
      const std::function<std::string_view()>& make_json) const;

  // Where the tokenizer of this digest is kept.
  std::filesystem::path file_of(const std::string& digest) const;

 private:
  std::shared_ptr<const Tokenizer> find(
      const std::filesystem::path& path) const;
  void keep(const std::filesystem::path& path, std::string_view packed) const;
  void make_room(uint64_t bytes) const;

  std::filesystem::path folder_;
  uint64_t most_bytes_;
};

}  // namespace mlxx::text
