#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mlxx/core/mlx.h"

namespace mlxx::engine {

struct PrefixStoreOptions {
  std::filesystem::path folder;  // made if need be
  size_t max_bytes = size_t{8} << 30;
  // Of pieces that wait for the disk.
  size_t max_queued_bytes = size_t{64} << 20;
};

// What becomes one file.
struct StoredPiece {
  struct Array {
    std::string name;
    std::string dtype;  // as safetensors calls it
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
  };
  std::map<std::string, std::string> notes;
  std::vector<Array> arrays;

  size_t nbytes() const;
};

struct LoadedPiece {
  std::map<std::string, std::string> notes;
  std::map<std::string, mx::array> arrays;
};

struct PrefixStoreStats {
  size_t bytes = 0;
  size_t files = 0;
  size_t queued = 0;     // pieces that wait for the disk
  uint64_t written = 0;  // files, since the start
  uint64_t evicted = 0;
  uint64_t refused = 0;  // damaged or foreign, when read
  std::string problem;   // why nothing is written any more
};

// Pieces of prefixes as files of one folder, each a .safetensors file with a
// checksum of all that is in it. A thread of its own writes them, whole or not
// at all; what was written is found by the next process, also after a kill.
// The least recently used files go when there are too many bytes. Several
// processes may use one folder. Called from one thread.
class PrefixStore {
 public:
  // internal if the folder cannot be made or read.
  explicit PrefixStore(const PrefixStoreOptions& options);
  // Writes what waits.
  ~PrefixStore();
  PrefixStore(const PrefixStore&) = delete;
  PrefixStore& operator=(const PrefixStore&) = delete;

  // Names are "<folder>/<file>" of letters, digits, '-' and '.'.
  // Whether it is there, or will be.
  bool has(const std::string& name) const;
  bool is_written(const std::string& name) const;
  // False if too much waits already; true also where nothing is written any
  // more because the disk is full, say (stats().problem).
  bool write(const std::string& name, StoredPiece piece);
  // Nothing if it is not there or cannot be trusted: then a warning says why,
  // and it is as if it were not there.
  std::optional<LoadedPiece> read(const std::string& name);
  // As read() says it of a file that is whole but does not fit.
  void refuse(const std::string& name, const std::string& why);
  // In use now.
  void touch(const std::string& name);

  // Waits until everything is on the disk.
  void flush();
  // Removes every file, those of other processes too.
  void clear();

  PrefixStoreStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mlxx::engine
