#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mlxx::api {

struct ResponseStoreOptions {
  std::filesystem::path file;  // empty: in memory, gone with the process
  int64_t ttl_seconds = int64_t{30} * 24 * 3600;  // after the last use
  uint64_t max_bytes = uint64_t{256} << 20;       // of all responses
  // Of one conversation, counted from its newest response back.
  int max_chain = 512;
  uint64_t max_chain_bytes = uint64_t{16} << 20;
};

// One turn of a conversation.
struct StoredResponse {
  std::string id;
  std::string previous_id;  // "" if it began the conversation
  std::string response;     // JSON: the object that the client got
  std::string input;        // JSON: a list, the input items of this turn alone
  std::vector<std::string> items =
      {};  // ids of its items, by which it is found
};

// Answers of /v1/responses, kept in an SQLite database so that clients can
// fetch them and go on from them. What put() has returned from is on the disk:
// it is there after a kill or a loss of power. Thread-safe; several processes
// may share a file.
//
// A file that SQLite finds damaged, at the start or later, is moved aside
// ("<file>.damaged-1") with a warning in the log, and an empty one is begun.
// bad_file for a database of another program or of a newer schema, which are
// left alone; internal if the file cannot be opened or written.
class ResponseStore {
 public:
  explicit ResponseStore(const ResponseStoreOptions& options);
  ~ResponseStore();
  ResponseStore(const ResponseStore&) = delete;
  ResponseStore& operator=(const ResponseStore&) = delete;

  // Adds a response, or replaces the one of that id. Its conversation counts
  // as used at `unix_time`; what has expired goes, then what was not used for
  // longest, until all fits. out_of_memory if it alone is over max_bytes.
  void put(const StoredResponse& response, int64_t unix_time);

  std::optional<StoredResponse> find(std::string_view id, int64_t unix_time);

  // The newest response with an item of that id. Its `items` stay empty.
  std::optional<StoredResponse> find_by_item(
      std::string_view item,
      int64_t unix_time);

  // False if there is none.
  bool remove(std::string_view id, int64_t unix_time);

  // The conversation that ends with this response, oldest first. not_found if
  // a turn is unknown, expired or deleted; invalid_request over the limits.
  std::vector<StoredResponse> conversation(
      std::string_view id,
      int64_t unix_time);

  struct Size {
    int64_t count = 0;
    int64_t bytes = 0;
  };
  Size size();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mlxx::api
