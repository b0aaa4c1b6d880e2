#include "mlxx/text/tokenizer_cache.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <vector>

#include "mlxx/base/atomic_file.h"
#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/base/paths.h"
#include "mlxx/base/sha256.h"

namespace mlxx::text {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".tokenizer";
constexpr size_t kDigest = 64;  // hexadecimal digits

std::string digest_of(std::string_view bytes) {
  return sha256_hex(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

struct KeptFile {
  fs::path path;
  uint64_t bytes;
  fs::file_time_type used;
};

// What the folder holds of ours, also what a killed process left behind, the
// longest unused first.
std::vector<KeptFile> kept_files(const fs::path& folder) {
  std::vector<KeptFile> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::string name = it->path().filename().string();
    if (name.find(kEnding) != kDigest) {
      continue;
    }
    std::error_code gone;
    KeptFile file{it->path(), it->file_size(gone), it->last_write_time(gone)};
    if (!gone) {
      files.push_back(std::move(file));
    }
  }
  std::ranges::sort(files, {}, &KeptFile::used);
  return files;
}

// So that it is not the first to go. Once a day is enough.
void mark_used(const fs::path& path) {
  std::error_code ignored;
  auto now = fs::file_time_type::clock::now();
  auto used = fs::last_write_time(path, ignored);
  if (!ignored && now - used > std::chrono::hours(24)) {
    fs::last_write_time(path, now, ignored);
  }
}

}  // namespace

TokenizerCache::TokenizerCache(fs::path folder, uint64_t most_bytes)
    : folder_(std::move(folder)), most_bytes_(most_bytes) {}

std::optional<TokenizerCache> TokenizerCache::from_environment() {
  constexpr const char* kName = "MLXX_TOKENIZER_CACHE";
  if (environment(kName) && !environment_flag(kName)) {
    return std::nullopt;
  }
  try {
    return TokenizerCache(mlxx_home() / "tokenizers");
  } catch (const Error&) {
    return std::nullopt;
  }
}

fs::path TokenizerCache::file_of(const std::string& digest) const {
  // Another format is another file, so that two versions do not take turns in
  // replacing each other's.
  std::string key = Tokenizer::packed_format() + " " + digest;
  return folder_ / fmt::format("{}{}", digest_of(key), kEnding);
}

std::shared_ptr<const Tokenizer> TokenizerCache::load(
    const std::string& digest,
    const std::function<std::string_view()>& make_json) const {
  if (digest.empty()) {
    return Tokenizer::from_json(make_json());
  }
  fs::path path = file_of(digest);
  if (auto found = find(path)) {
    return found;
  }
  auto tokenizer = Tokenizer::from_json(make_json());
  keep(path, tokenizer->packed());
  return tokenizer;
}

std::shared_ptr<const Tokenizer> TokenizerCache::find(
    const fs::path& path) const {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) {
    return nullptr;
  }
  try {
    // The digest of the rest, then the packed form.
    MappedFile file(path);
    if (file.size() > most_bytes_) {
      return nullptr;
    }
    std::string_view content(
        reinterpret_cast<const char*>(file.bytes().data()),
        file.size());
    auto packed = content.substr(std::min(kDigest, content.size()));
    if (digest_of(packed) != content.substr(0, kDigest)) {
      log_info("{} is damaged, it is written anew", path.string());
      return nullptr;
    }
    auto tokenizer = Tokenizer::from_packed(packed);
    mark_used(path);
    return tokenizer;
  } catch (const Error& error) {
    log_info("a kept tokenizer cannot be read: {}", error.what());
    return nullptr;
  }
}

void TokenizerCache::keep(const fs::path& path, std::string_view packed) const {
  uint64_t bytes = packed.size() + kDigest;
  if (packed.empty() || bytes > most_bytes_) {
    return;
  }
  try {
    make_folder(folder_);
    make_room(bytes);
    AtomicFile file(path);
    file.write(std::span<const char>(digest_of(packed)));
    file.write(std::span<const char>(packed));
    file.commit();
  } catch (const Error& error) {
    log_info("the tokenizer is not kept: {}", error.what());
  }
}

void TokenizerCache::make_room(uint64_t bytes) const {
  auto files = kept_files(folder_);
  uint64_t total = bytes;
  for (const KeptFile& file : files) {
    total += file.bytes;
  }
  for (const KeptFile& file : files) {
    if (total <= most_bytes_) {
      return;
    }
    std::error_code ignored;
    fs::remove(file.path, ignored);
    total -= file.bytes;
  }
}

}  // namespace mlxx::text
