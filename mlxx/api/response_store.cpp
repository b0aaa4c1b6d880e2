#include "mlxx/api/response_store.h"

#include <algorithm>
#include <mutex>

#include "mlxx/api/sqlite_database.h"
#include "mlxx/base/error.h"
#include "mlxx/base/log.h"

namespace mlxx::api {

namespace {

constexpr int64_t kApplication = 0x6d6c7878;  // "mlxx"
constexpr int64_t kSchema = 1;
// A whole check at the start reads the file: milliseconds up to here. Damage
// in a larger one is found when it is met.
constexpr int64_t kCheckedBytes = int64_t{16} << 20;
constexpr int kMaxDamaged = 1000;  // files moved aside

constexpr const char* kTables = R"sql(
CREATE TABLE responses (
  id TEXT PRIMARY KEY,
  previous TEXT NOT NULL,
  used INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  response TEXT NOT NULL,
  input TEXT NOT NULL
);
CREATE INDEX responses_by_use ON responses (used);
CREATE TABLE items (id TEXT NOT NULL, response TEXT NOT NULL);
CREATE INDEX items_by_id ON items (id);
CREATE INDEX items_by_response ON items (response);
CREATE TABLE totals (count INTEGER NOT NULL, bytes INTEGER NOT NULL);
INSERT INTO totals VALUES (0, 0);
CREATE TRIGGER responses_insert AFTER INSERT ON responses BEGIN
  UPDATE totals SET count = count + 1, bytes = bytes + new.bytes;
END;
CREATE TRIGGER responses_delete AFTER DELETE ON responses BEGIN
  UPDATE totals SET count = count - 1, bytes = bytes - old.bytes;
  DELETE FROM items WHERE response = old.id;
END;
)sql";

// From a response back to the first of its conversation, at most ?3 of them.
constexpr const char* kChain = R"sql(
WITH RECURSIVE chain (id, previous, depth) AS (
  SELECT id, previous, 1 FROM responses WHERE id = ?1 AND used > ?2
  UNION ALL
  SELECT responses.id, responses.previous, depth + 1 FROM responses
  JOIN chain ON responses.id = chain.previous
  WHERE responses.used > ?2 AND depth < ?3
))sql";

// The file's name with a suffix: "x.db" and "-wal" give "x.db-wal".
std::filesystem::path beside(
    const std::filesystem::path& file,
    std::string_view suffix) {
  std::filesystem::path out = file;
  out += suffix;
  return out;
}

// Out of the way, with its log, which belongs to it.
void move_aside(const std::filesystem::path& file, std::string_view why) {
  for (int number = 1; number <= kMaxDamaged; ++number) {
    std::filesystem::path target =
        beside(file, fmt::format(".damaged-{}", number));
    std::error_code error;
    if (std::filesystem::exists(target, error)) {
      continue;
    }
    std::filesystem::rename(file, target, error);
    if (error) {
      break;
    }
    std::filesystem::rename(
        beside(file, "-wal"),
        beside(target, "-wal"),
        error);
    std::filesystem::remove(beside(file, "-shm"), error);
    log_warning(
        "[{}] the stored responses are damaged ({}); moved to {}, and an empty "
        "store is begun",
        file.string(),
        why,
        target.string());
    return;
  }
  fail(
      ErrorKind::internal,
      file.string(),
      "the stored responses are damaged ({}) and the file cannot be moved",
      why);
}

// Makes or checks the tables.
void set_up(SqliteDatabase& database, const std::filesystem::path& file) {
  // FULL: the log is on the disk when a transaction has been committed.
  database.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;");
  SqliteTransaction transaction(database);
  int64_t application = database.integer("PRAGMA application_id");
  int64_t schema = database.integer("PRAGMA user_version");
  bool has_tables = database.integer("SELECT count(*) FROM sqlite_schema") != 0;
  if (application == kApplication) {
    if (schema != kSchema) {
      fail(
          ErrorKind::bad_file,
          file.string(),
          "stored responses of schema {}, this program knows {}",
          schema,
          kSchema);
    }
  } else if (application != 0 || schema != 0 || has_tables) {
    fail(
        ErrorKind::bad_file,
        file.string(),
        "a database of another program (application {:#x}), not stored "
        "responses",
        static_cast<uint64_t>(application) & 0xffffffffU);
  } else {
    database.execute(kTables);
    database.execute(
        fmt::format(
            "PRAGMA application_id = {}; PRAGMA user_version = {};",
            kApplication,
            kSchema)
            .c_str());
  }
  transaction.commit();
  int64_t pages = database.integer("PRAGMA page_count");
  if (pages * database.integer("PRAGMA page_size") <= kCheckedBytes) {
    SqliteStatement check = database.prepare("PRAGMA quick_check(1)");
    std::string found = check.step() ? check.text(0) : "no result";
    if (found != "ok") {
      throw SqliteError(
          kSqliteDamage,
          fmt::format("[{}] {}", file.string(), found));
    }
  }
}

// Of columns id, previous, response, input.
StoredResponse read(const SqliteStatement& row) {
  return {row.text(0), row.text(1), row.text(2), row.text(3), {}};
}

}  // namespace

struct ResponseStore::Impl {
  ResponseStoreOptions options;
  std::mutex mutex;
  std::unique_ptr<SqliteDatabase> database;

  void open() {
    auto fresh = std::make_unique<SqliteDatabase>(options.file);
    set_up(*fresh, options.file);
    database = std::move(fresh);
  }

  void open_or_begin_anew() {
    try {
      open();
    } catch (const SqliteError& error) {
      if (!error.is_damage() || options.file.empty()) {
        throw;
      }
      move_aside(options.file, error.what());
      open();
    }
  }

  // Runs `work`; once more on an empty store if the file turns out damaged.
  template <typename Work>
  auto guarded(Work&& work) {
    std::lock_guard lock(mutex);
    if (!database) {
      open_or_begin_anew();
    }
    try {
      return work();
    } catch (const SqliteError& error) {
      if (!error.is_damage() || options.file.empty()) {
        throw;
      }
      database.reset();
      move_aside(options.file, error.what());
      open();
    }
    return work();
  }

  int64_t oldest_use(int64_t unix_time) const {
    return unix_time - options.ttl_seconds;
  }

  void remove_by_id(std::string_view id) {
    database->prepare("DELETE FROM responses WHERE id = ?1").bind(1, id).step();
  }

  void make_room(int64_t bytes, int64_t unix_time);
};

// Makes `bytes` more fit: expired ones go, then the least recently used.
void ResponseStore::Impl::make_room(int64_t bytes, int64_t unix_time) {
  database->prepare("DELETE FROM responses WHERE used <= ?1")
      .bind(1, oldest_use(unix_time))
      .step();
  auto room = static_cast<int64_t>(options.max_bytes) - bytes;
  while (database->integer("SELECT bytes FROM totals") > room) {
    // Turns of one conversation are used at one time: the oldest goes first.
    SqliteStatement oldest = database->prepare(
        "SELECT id FROM responses ORDER BY used, rowid LIMIT 1");
    if (!oldest.step()) {
      return;
    }
    remove_by_id(oldest.text(0));
  }
}

ResponseStore::ResponseStore(const ResponseStoreOptions& options)
    : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  impl_->open_or_begin_anew();
}

ResponseStore::~ResponseStore() = default;

void ResponseStore::put(const StoredResponse& response, int64_t unix_time) {
  auto bytes =
      static_cast<int64_t>(response.response.size() + response.input.size());
  if (static_cast<uint64_t>(bytes) > impl_->options.max_bytes) {
    fail(
        ErrorKind::out_of_memory,
        "response store",
        "a response of {} bytes, the store holds {}",
        bytes,
        impl_->options.max_bytes);
  }
  impl_->guarded([&] {
    SqliteDatabase& database = *impl_->database;
    SqliteTransaction transaction(database);
    impl_->remove_by_id(response.id);
    database
        .prepare(
            std::string(kChain) +
            "UPDATE responses SET used = ?4 WHERE id IN (SELECT id FROM chain)")
        .bind(1, response.previous_id)
        .bind(2, impl_->oldest_use(unix_time))
        .bind(3, int64_t{impl_->options.max_chain})
        .bind(4, unix_time)
        .step();
    impl_->make_room(bytes, unix_time);
    database.prepare("INSERT INTO responses VALUES (?1, ?2, ?3, ?4, ?5, ?6)")
        .bind(1, response.id)
        .bind(2, response.previous_id)
        .bind(3, unix_time)
        .bind(4, bytes)
        .bind(5, response.response)
        .bind(6, response.input)
        .step();
    for (const std::string& item : response.items) {
      database.prepare("INSERT INTO items VALUES (?1, ?2)")
          .bind(1, item)
          .bind(2, response.id)
          .step();
    }
    transaction.commit();
  });
}

std::optional<StoredResponse> ResponseStore::find(
    std::string_view id,
    int64_t unix_time) {
  return impl_->guarded([&]() -> std::optional<StoredResponse> {
    SqliteStatement row = impl_->database->prepare(
        "SELECT id, previous, response, input FROM responses "
        "WHERE id = ?1 AND used > ?2");
    row.bind(1, id).bind(2, impl_->oldest_use(unix_time));
    if (!row.step()) {
      return std::nullopt;
    }
    return read(row);
  });
}

std::optional<StoredResponse> ResponseStore::find_by_item(
    std::string_view item,
    int64_t unix_time) {
  return impl_->guarded([&]() -> std::optional<StoredResponse> {
    SqliteStatement row = impl_->database->prepare(
        "SELECT responses.id, previous, responses.response, input "
        "FROM responses JOIN items ON items.response = responses.id "
        "WHERE items.id = ?1 AND used > ?2 ORDER BY responses.rowid DESC");
    row.bind(1, item).bind(2, impl_->oldest_use(unix_time));
    if (!row.step()) {
      return std::nullopt;
    }
    return read(row);
  });
}

bool ResponseStore::remove(std::string_view id, int64_t unix_time) {
  return impl_->guarded([&] {
    SqliteTransaction transaction(*impl_->database);
    SqliteStatement row = impl_->database->prepare(
        "DELETE FROM responses WHERE id = ?1 AND used > ?2 RETURNING id");
    row.bind(1, id).bind(2, impl_->oldest_use(unix_time));
    bool found = row.step();
    while (found && row.step()) {
    }
    transaction.commit();
    return found;
  });
}

std::vector<StoredResponse> ResponseStore::conversation(
    std::string_view id,
    int64_t unix_time) {
  constexpr const char* kPlace = "previous_response_id";
  const ResponseStoreOptions& options = impl_->options;
  auto turns = impl_->guarded([&] {
    std::vector<StoredResponse> out;
    uint64_t total = 0;
    SqliteStatement rows = impl_->database->prepare(
        std::string(kChain) +
        "SELECT responses.id, responses.previous, responses.response, input, "
        "bytes "
        "FROM chain JOIN responses ON responses.id = chain.id ORDER BY depth");
    rows.bind(1, id)
        .bind(2, impl_->oldest_use(unix_time))
        .bind(3, int64_t{options.max_chain} + 1);
    while (rows.step()) {
      total += static_cast<uint64_t>(rows.integer(4));
      if (total > options.max_chain_bytes) {
        fail(
            ErrorKind::invalid_request,
            kPlace,
            "a conversation of more than {} bytes",
            options.max_chain_bytes);
      }
      out.push_back(read(rows));
    }
    return out;
  });
  std::string_view missing =
      turns.empty() ? id : std::string_view(turns.back().previous_id);
  if (turns.size() > static_cast<size_t>(options.max_chain)) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "a conversation of more than {} responses",
        options.max_chain);
  }
  if (!missing.empty() || turns.empty()) {
    fail(
        ErrorKind::not_found,
        kPlace,
        "there is no response '{}'",
        missing.substr(0, 100));
  }
  std::reverse(turns.begin(), turns.end());
  return turns;
}

ResponseStore::Size ResponseStore::size() {
  return impl_->guarded([&] {
    SqliteDatabase& database = *impl_->database;
    return Size{
        database.integer("SELECT count FROM totals"),
        database.integer("SELECT bytes FROM totals")};
  });
}

}  // namespace mlxx::api
