#include "mlxx/api/sqlite_database.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include "mlxx/base/log.h"

namespace mlxx::api {

namespace {

constexpr int kBusyMilliseconds = 5000;

[[noreturn]] void
fail_sqlite(sqlite3* database, const std::string& place, int code) {
  const char* why =
      database != nullptr ? sqlite3_errmsg(database) : sqlite3_errstr(code);
  throw SqliteError(code, fmt::format("[{}] SQLite: {}", place, why));
}

}  // namespace

bool SqliteError::is_damage() const {
  int primary = code_ & 0xff;
  return primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB;
}

SqliteStatement::SqliteStatement(
    sqlite3* database,
    std::string place,
    std::string_view sql)
    : database_(database), place_(std::move(place)) {
  int code = sqlite3_prepare_v2(
      database_,
      sql.data(),
      static_cast<int>(sql.size()),
      &statement_,
      nullptr);
  if (code != SQLITE_OK) {
    fail_with(code);
  }
}

SqliteStatement::~SqliteStatement() {
  sqlite3_finalize(statement_);
}

void SqliteStatement::fail_with(int code) const {
  fail_sqlite(database_, place_, code);
}

SqliteStatement& SqliteStatement::bind(int index, std::string_view text) {
  int code = sqlite3_bind_text64(
      statement_,
      index,
      text.data() != nullptr ? text.data() : "",
      text.size(),
      SQLITE_TRANSIENT,
      SQLITE_UTF8);
  if (code != SQLITE_OK) {
    fail_with(code);
  }
  return *this;
}

SqliteStatement& SqliteStatement::bind(int index, int64_t value) {
  int code = sqlite3_bind_int64(statement_, index, value);
  if (code != SQLITE_OK) {
    fail_with(code);
  }
  return *this;
}

bool SqliteStatement::step() {
  int code = sqlite3_step(statement_);
  if (code != SQLITE_ROW && code != SQLITE_DONE) {
    fail_with(code);
  }
  return code == SQLITE_ROW;
}

int64_t SqliteStatement::integer(int column) const {
  return sqlite3_column_int64(statement_, column);
}

std::string SqliteStatement::text(int column) const {
  const unsigned char* text = sqlite3_column_text(statement_, column);
  if (text == nullptr) {
    return "";
  }
  int bytes = sqlite3_column_bytes(statement_, column);
  return {reinterpret_cast<const char*>(text), static_cast<size_t>(bytes)};
}

SqliteDatabase::SqliteDatabase(const std::filesystem::path& file)
    : place_(file.empty() ? ":memory:" : file.string()) {
  if (!file.empty()) {
    // SQLite would make it for all to read; its -wal file gets the same mode.
    // An existing one is not touched: closing it would drop SQLite's locks.
    int descriptor =
        open(file.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (descriptor >= 0) {
      close(descriptor);
    }
  }
  int code = sqlite3_open_v2(
      place_.c_str(),
      &database_,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
      nullptr);
  if (code != SQLITE_OK) {
    std::string why =
        database_ != nullptr ? sqlite3_errmsg(database_) : sqlite3_errstr(code);
    sqlite3_close(database_);
    throw SqliteError(code, fmt::format("[{}] SQLite: {}", place_, why));
  }
  sqlite3_extended_result_codes(database_, 1);
  sqlite3_busy_timeout(database_, kBusyMilliseconds);
  // The file is not trusted to define what runs.
  sqlite3_db_config(database_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(database_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
}

SqliteDatabase::~SqliteDatabase() {
  sqlite3_close(database_);
}

void SqliteDatabase::execute(const char* sql) {
  int code = sqlite3_exec(database_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) {
    fail_sqlite(database_, place_, code);
  }
}

SqliteStatement SqliteDatabase::prepare(std::string_view sql) {
  return SqliteStatement(database_, place_, sql);
}

int64_t SqliteDatabase::integer(std::string_view sql) {
  SqliteStatement statement = prepare(sql);
  return statement.step() ? statement.integer(0) : 0;
}

SqliteTransaction::SqliteTransaction(SqliteDatabase& database)
    : database_(database) {
  database_.execute("BEGIN IMMEDIATE");
}

SqliteTransaction::~SqliteTransaction() {
  if (!open_) {
    return;
  }
  try {
    database_.execute("ROLLBACK");
  } catch (const Error& error) {
    // SQLite may have rolled back by itself, as after a full disk.
    log_debug("{}", error.what());
  }
}

void SqliteTransaction::commit() {
  database_.execute("COMMIT");
  open_ = false;
}

}  // namespace mlxx::api
