#include "mlxx/engine/prefix_store.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "mlxx/base/atomic_file.h"
#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/engine/stored_piece.h"

namespace mlxx::engine {
namespace {

namespace fs = std::filesystem;
using FileTime = fs::file_time_type;

constexpr std::string_view kEnding = ".safetensors";
// A file that a killed process was writing goes when it is this old.
constexpr auto kOldTemporary = std::chrono::minutes(10);

struct KnownFile {
  size_t bytes = 0;
  FileTime used;
};

// The owner's alone: what is in it comes from prompts.
void make_private(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) {
    fs::permissions(folder, fs::perms::owner_all, error);
  }
  if (error || !fs::is_directory(folder, error)) {
    fail(
        ErrorKind::internal,
        folder.string(),
        "cannot be made a folder: {}",
        error ? error.message() : "a file has this name");
  }
}

}  // namespace

struct PrefixStore::Impl {
  PrefixStoreOptions options;

  struct Job {
    std::string name;
    StoredPiece piece;
  };
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> queue;  // the front one is being written
  std::unordered_map<std::string, KnownFile> files;
  std::unordered_map<std::string, int> waiting;  // names in the queue
  size_t queued_bytes = 0;
  PrefixStoreStats stats;
  bool is_stopping = false;
  std::thread writer;

  explicit Impl(const PrefixStoreOptions& from);
  ~Impl();

  fs::path path_of(const std::string& name) const {
    return options.folder / name;
  }
  void scan();
  void scan_folder(const fs::path& folder);
  void write_all();
  void write_file(const Job& job);
  void add_file(const std::string& name, size_t bytes);
  void forget(const std::string& name);
  void evict();
};

PrefixStore::Impl::Impl(const PrefixStoreOptions& from) : options(from) {
  make_private(options.folder);
  scan();
  {
    std::lock_guard lock(mutex);
    evict();
  }
  writer = std::thread([this] { write_all(); });
}

PrefixStore::Impl::~Impl() {
  {
    std::lock_guard lock(mutex);
    is_stopping = true;
  }
  changed.notify_all();
  writer.join();
}

void PrefixStore::Impl::scan() {
  std::error_code error;
  for (fs::directory_iterator at(options.folder, error), end;
       !error && at != end;
       at.increment(error)) {
    std::error_code ignored;
    if (at->is_directory(ignored)) {
      scan_folder(at->path());
    }
  }
  if (error) {
    fail(
        ErrorKind::internal,
        options.folder.string(),
        "cannot be read: {}",
        error.message());
  }
}

// What does not look like one of ours is left alone.
void PrefixStore::Impl::scan_folder(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code broken;
    auto used = at->last_write_time(broken);
    auto bytes = at->file_size(broken);
    if (broken || !at->is_regular_file(broken)) {
      continue;
    }
    std::string file = at->path().filename().string();
    if (file.ends_with(kEnding)) {
      files[(folder.filename() / file).string()] = {bytes, used};
      stats.bytes += bytes;
    } else if (
        file.find(kEnding) != std::string::npos &&
        FileTime::clock::now() - used > kOldTemporary) {
      fs::remove(at->path(), broken);
    }
  }
}

void PrefixStore::Impl::write_all() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return is_stopping || !queue.empty(); });
    if (queue.empty()) {
      return;
    }
    const Job& job = queue.front();
    std::string problem = stats.problem;
    if (problem.empty()) {
      lock.unlock();
      try {
        write_file(job);
      } catch (const std::exception& error) {
        problem = error.what();
        log_warning(
            "[prompt cache] nothing is written to disk any more: {}",
            problem);
      }
      lock.lock();
    }
    stats.problem = problem;
    waiting.erase(job.name);
    queued_bytes -= job.piece.nbytes();
    queue.pop_front();
    evict();
    changed.notify_all();
  }
}

void PrefixStore::Impl::write_file(const Job& job) {
  std::string head = piece_head(job.piece);
  fs::path path = path_of(job.name);
  make_private(path.parent_path());
  AtomicFile file(path);
  file.write(std::span<const char>(head));
  for (const auto& array : job.piece.arrays) {
    file.write(std::span<const std::byte>(array.bytes));
  }
  file.commit();
  std::lock_guard lock(mutex);
  add_file(job.name, head.size() + job.piece.nbytes());
  ++stats.written;
}

void PrefixStore::Impl::add_file(const std::string& name, size_t bytes) {
  forget(name);
  files[name] = {bytes, FileTime::clock::now()};
  stats.bytes += bytes;
}

void PrefixStore::Impl::forget(const std::string& name) {
  auto found = files.find(name);
  if (found != files.end()) {
    stats.bytes -= found->second.bytes;
    files.erase(found);
  }
}

void PrefixStore::Impl::evict() {
  while (stats.bytes > options.max_bytes && !files.empty()) {
    // Of those used together the later blocks first: names begin with the
    // number of tokens.
    auto victim =
        std::ranges::min_element(files, [](const auto& a, const auto& b) {
          return a.second.used != b.second.used ? a.second.used < b.second.used
                                                : a.first > b.first;
        });
    std::error_code ignored;
    fs::remove(path_of(victim->first), ignored);
    forget(std::string(victim->first));
    ++stats.evicted;
  }
}

PrefixStore::PrefixStore(const PrefixStoreOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
PrefixStore::~PrefixStore() = default;

bool PrefixStore::has(const std::string& name) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->files.contains(name) || impl_->waiting.contains(name);
}

bool PrefixStore::is_written(const std::string& name) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->files.contains(name);
}

bool PrefixStore::write(const std::string& name, StoredPiece piece) {
  std::lock_guard lock(impl_->mutex);
  if (!impl_->stats.problem.empty() || impl_->waiting.contains(name)) {
    return true;
  }
  size_t bytes = piece.nbytes();
  if (!impl_->queue.empty() &&
      impl_->queued_bytes + bytes > impl_->options.max_queued_bytes) {
    return false;
  }
  impl_->queued_bytes += bytes;
  impl_->waiting[name] = 1;
  impl_->queue.push_back({name, std::move(piece)});
  impl_->changed.notify_all();
  return true;
}

std::optional<LoadedPiece> PrefixStore::read(const std::string& name) {
  if (!is_written(name)) {
    return std::nullopt;
  }
  try {
    return load_piece(impl_->path_of(name));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::not_found) {
      // Another process removed it.
      std::lock_guard lock(impl_->mutex);
      impl_->forget(name);
    } else {
      refuse(name, error.what());
    }
  } catch (const std::exception& error) {
    refuse(name, error.what());
  }
  return std::nullopt;
}

void PrefixStore::refuse(const std::string& name, const std::string& why) {
  log_warning("[prompt cache] '{}' is skipped: {}", name, why);
  std::lock_guard lock(impl_->mutex);
  impl_->forget(name);
  ++impl_->stats.refused;
}

void PrefixStore::touch(const std::string& name) {
  auto now = FileTime::clock::now();
  {
    std::lock_guard lock(impl_->mutex);
    auto found = impl_->files.find(name);
    if (found == impl_->files.end()) {
      return;
    }
    found->second.used = now;
  }
  std::error_code ignored;
  fs::last_write_time(impl_->path_of(name), now, ignored);
}

void PrefixStore::flush() {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [&] { return impl_->queue.empty(); });
}

void PrefixStore::clear() {
  flush();
  std::lock_guard lock(impl_->mutex);
  for (const auto& [name, file] : impl_->files) {
    std::error_code ignored;
    fs::remove(impl_->path_of(name), ignored);
  }
  impl_->files.clear();
  impl_->stats.bytes = 0;
}

PrefixStoreStats PrefixStore::stats() const {
  std::lock_guard lock(impl_->mutex);
  PrefixStoreStats stats = impl_->stats;
  stats.files = impl_->files.size();
  stats.queued = impl_->queue.size();
  return stats;
}

}  // namespace mlxx::engine
