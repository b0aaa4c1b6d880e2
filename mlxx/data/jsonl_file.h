#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace mlxx::data {

// The lines of a file of JSON lines that is too long for memory: only where
// they are is kept. Blank lines are left out; a byte order mark and CRLF are
// tolerated. Safe to call from several threads.
class JsonlFile {
 public:
  // not_found; bad_file for what is no regular file, holds no line or is
  // UTF-16 or binary, and for a line of more than 16 MiB.
  explicit JsonlFile(const std::filesystem::path& path);
  ~JsonlFile();
  JsonlFile(const JsonlFile&) = delete;
  JsonlFile& operator=(const JsonlFile&) = delete;

  int64_t size() const {
    return static_cast<int64_t>(lines_.size());
  }
  // Without its end. bad_file if the file has changed since it was opened.
  std::string read(int64_t index) const;
  // "train.jsonl: line 7", for errors.
  std::string place(int64_t index) const;
  // Seconds since 1970 of its last change.
  int64_t modified_at() const {
    return stamp_.seconds;
  }

 private:
  struct Line {
    uint64_t offset;
    uint32_t bytes;
    uint32_t number;  // from 1, blank ones counted
  };
  struct Stamp {
    int64_t bytes = 0;
    int64_t seconds = 0;
    int64_t nanoseconds = 0;

    bool operator==(const Stamp&) const = default;
  };

  Stamp current_stamp() const;
  void find_lines();
  void add_line(uint64_t begin, uint64_t end, uint64_t number);
  size_t read_at(char* out, size_t bytes, uint64_t offset) const;

  std::string name_;
  int descriptor_ = -1;
  Stamp stamp_;
  std::vector<Line> lines_;
};

// Nothing but white space.
bool is_blank(std::string_view line);

}  // namespace mlxx::data
