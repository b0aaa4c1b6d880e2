#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "mlxx/base/error.h"

struct sqlite3;
struct sqlite3_stmt;

namespace mlxx::api {

// The result code SQLITE_CORRUPT.
inline constexpr int kSqliteDamage = 11;

// What SQLite answered. The message names the file.
class SqliteError : public Error {
 public:
  SqliteError(int code, std::string_view message)
      : Error(ErrorKind::internal, message), code_(code) {}
  // The file's content is not what SQLite wrote.
  bool is_damage() const;

 private:
  int code_;  // a result code of sqlite3.h
};

// A prepared statement. Bind from 1 on, step, read columns from 0 on.
class SqliteStatement {
 public:
  SqliteStatement(sqlite3* database, std::string place, std::string_view sql);
  ~SqliteStatement();
  SqliteStatement(const SqliteStatement&) = delete;
  SqliteStatement& operator=(const SqliteStatement&) = delete;

  SqliteStatement& bind(int index, std::string_view text);
  SqliteStatement& bind(int index, int64_t value);
  // True if there is a row.
  bool step();
  int64_t integer(int column) const;
  std::string text(int column) const;

 private:
  [[noreturn]] void fail_with(int code) const;

  sqlite3* database_;
  std::string place_;
  sqlite3_stmt* statement_ = nullptr;
};

// One connection; one thread at a time. What goes wrong is a SqliteError.
class SqliteDatabase {
 public:
  // Makes the file, readable by its owner alone, if there is none. Empty: in
  // memory.
  explicit SqliteDatabase(const std::filesystem::path& file);
  ~SqliteDatabase();
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;

  void execute(const char* sql);
  SqliteStatement prepare(std::string_view sql);
  int64_t integer(std::string_view sql);  // of the only row

 private:
  sqlite3* database_ = nullptr;
  std::string place_;
};

// BEGIN IMMEDIATE ... COMMIT; rolled back unless commit() was called.
class SqliteTransaction {
 public:
  explicit SqliteTransaction(SqliteDatabase& database);
  ~SqliteTransaction();
  SqliteTransaction(const SqliteTransaction&) = delete;
  SqliteTransaction& operator=(const SqliteTransaction&) = delete;
  void commit();

 private:
  SqliteDatabase& database_;
  bool open_ = true;
};

}  // namespace mlxx::api
