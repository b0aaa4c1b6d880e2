#include <sys/stat.h>

#include <fstream>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "mlxx/api/response_store.h"
#include "mlxx/api/sqlite_database.h"
#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "tests/core/temporary_folder.h"

namespace mlxx::api {
namespace {

constexpr int64_t kNow = 1'800'000'000;

StoredResponse turn(
    const std::string& id,
    const std::string& previous = "",
    size_t bytes = 10) {
  StoredResponse out;
  out.id = id;
  out.previous_id = previous;
  out.response = std::string(bytes, 'x') + id;
  out.input = fmt::format("日本 {}", id);
  return out;
}

ErrorKind kind_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorKind::internal;
}

class ResponseStoreTest : public ::testing::Test {
 protected:
  ResponseStoreOptions options() {
    ResponseStoreOptions out;
    out.file = folder_.path() / "responses.db";
    return out;
  }
  TemporaryFolder folder_;
};

TEST_F(ResponseStoreTest, WhatWasPutIsThereAfterOpeningAgain) {
  {
    ResponseStore store(options());
    store.put(turn("resp_1"), kNow);
    store.put(turn("resp_2", "resp_1"), kNow);
  }
  ResponseStore store(options());
  auto found = store.find("resp_2", kNow);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->response, turn("resp_2").response);
  EXPECT_EQ(found->input, turn("resp_2").input);
  EXPECT_EQ(found->previous_id, "resp_1");
  EXPECT_FALSE(store.find("resp_3", kNow));
  EXPECT_EQ(store.size().count, 2);
  struct stat info{};
  ASSERT_EQ(::stat(options().file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST_F(ResponseStoreTest, AnyTextMayBeAnId) {
  ResponseStore store({});
  std::string bad = "a'; DROP TABLE responses; --";
  std::string zero("x\0y", 3);
  store.put(turn(bad), kNow);
  store.put(turn(zero), kNow);
  EXPECT_TRUE(store.find(bad, kNow));
  EXPECT_TRUE(store.find(zero, kNow));
  EXPECT_FALSE(store.find("x", kNow));
  EXPECT_FALSE(store.find("", kNow));
  EXPECT_FALSE(store.find(std::string(1 << 20, '%'), kNow));
}

TEST_F(ResponseStoreTest, IsFoundByItsItems) {
  ResponseStore store(options());
  StoredResponse first = turn("a");
  first.items = {"msg_1", "msg_2"};
  store.put(first, kNow);
  StoredResponse second = turn("b");
  second.items = {"msg_2"};
  store.put(second, kNow);
  EXPECT_EQ(store.find_by_item("msg_1", kNow)->id, "a");
  EXPECT_EQ(store.find_by_item("msg_2", kNow)->id, "b");
  EXPECT_FALSE(store.find_by_item("msg_3", kNow));
  EXPECT_FALSE(store.find_by_item("msg_1", kNow + (int64_t{1} << 32)));
  store.remove("b", kNow);
  EXPECT_EQ(store.find_by_item("msg_2", kNow)->id, "a");
  store.remove("a", kNow);
  EXPECT_FALSE(store.find_by_item("msg_2", kNow));
}

TEST_F(ResponseStoreTest, OneIsReplacedAndRemoved) {
  ResponseStore store(options());
  store.put(turn("a", "", 10), kNow);
  auto small = store.size();
  store.put(turn("a", "", 1000), kNow);
  EXPECT_EQ(store.size().count, 1);
  EXPECT_EQ(store.size().bytes, small.bytes + 990);
  EXPECT_TRUE(store.remove("a", kNow));
  EXPECT_FALSE(store.remove("a", kNow));
  EXPECT_EQ(store.size().count, 0);
  EXPECT_EQ(store.size().bytes, 0);
}

TEST_F(ResponseStoreTest, ResponsesExpireAfterTheirLastUse) {
  auto limits = options();
  limits.ttl_seconds = 100;
  ResponseStore store(limits);
  store.put(turn("a"), kNow);
  store.put(turn("lone"), kNow);
  store.put(turn("b", "a"), kNow + 60);  // uses a as well
  EXPECT_TRUE(store.find("lone", kNow + 99));
  EXPECT_FALSE(store.find("lone", kNow + 100));
  EXPECT_FALSE(store.remove("lone", kNow + 100));
  EXPECT_TRUE(store.find("a", kNow + 159));
  EXPECT_EQ(store.conversation("b", kNow + 159).size(), 2U);
  EXPECT_EQ(
      kind_of([&] { store.conversation("b", kNow + 160); }),
      ErrorKind::not_found);
  store.put(turn("c"), kNow + 200);
  EXPECT_EQ(store.size().count, 1);
}

TEST_F(ResponseStoreTest, TheLeastRecentlyUsedMakesRoom) {
  auto limits = options();
  limits.max_bytes = 10'000;
  ResponseStore store(limits);
  store.put(turn("old", "", 2000), kNow);
  for (int i = 0; i < 3; ++i) {
    store.put(turn(fmt::format("t{}", i), "", 2000), kNow + 1 + i);
  }
  store.put(turn("more", "old", 1000), kNow + 10);
  store.put(turn("last", "", 2000), kNow + 11);
  EXPECT_TRUE(store.find("old", kNow + 11)) << "its conversation goes on";
  EXPECT_FALSE(store.find("t0", kNow + 11));
  EXPECT_TRUE(store.find("t2", kNow + 11));
  EXPECT_TRUE(store.find("last", kNow + 11));
  EXPECT_LE(store.size().bytes, 10'000);
  EXPECT_EQ(
      kind_of([&] { store.put(turn("huge", "", 10'001), kNow + 12); }),
      ErrorKind::out_of_memory);
  EXPECT_TRUE(store.find("last", kNow + 12));
}

TEST_F(ResponseStoreTest, AConversationIsFollowedBackToItsBeginning) {
  auto limits = options();
  limits.max_chain = 5;
  limits.max_chain_bytes = 3000;
  ResponseStore store(limits);
  for (int i = 1; i <= 6; ++i) {
    store.put(
        turn(fmt::format("r{}", i), i == 1 ? "" : fmt::format("r{}", i - 1)),
        kNow);
  }
  auto turns = store.conversation("r5", kNow);
  ASSERT_EQ(turns.size(), 5U);
  EXPECT_EQ(turns.front().id, "r1");
  EXPECT_EQ(turns.back().id, "r5");
  EXPECT_EQ(
      kind_of([&] { store.conversation("r6", kNow); }),
      ErrorKind::invalid_request);
  EXPECT_EQ(
      kind_of([&] { store.conversation("nope", kNow); }),
      ErrorKind::not_found);
  store.remove("r2", kNow);
  EXPECT_EQ(
      kind_of([&] { store.conversation("r4", kNow); }),
      ErrorKind::not_found);
  store.put(turn("wide1", "", 2000), kNow);
  store.put(turn("wide2", "wide1", 2000), kNow);
  EXPECT_EQ(
      kind_of([&] { store.conversation("wide2", kNow); }),
      ErrorKind::invalid_request);
  store.put(turn("loop1", "loop2"), kNow);
  store.put(turn("loop2", "loop1"), kNow);
  EXPECT_EQ(
      kind_of([&] { store.conversation("loop2", kNow); }),
      ErrorKind::invalid_request);
}

class DamagedStoreTest : public ResponseStoreTest {
 protected:
  void SetUp() override {
    set_log_sink([this](LogLevel level, std::string_view line) {
      if (level == LogLevel::warning) {
        warnings_ += std::string(line) + "\n";
      }
    });
    ResponseStore store(options());
    for (int i = 0; i < 200; ++i) {
      store.put(turn(fmt::format("r{}", i), "", 20'000), kNow);
    }
  }
  void TearDown() override {
    set_log_sink({});
  }
  void overwrite(std::streamoff from, size_t bytes) {
    std::fstream file(
        options().file,
        std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(from);
    file << std::string(bytes, '\x5a');
  }
  std::filesystem::path aside(int number) {
    return options().file.string() + ".damaged-" + std::to_string(number);
  }
  std::string warnings_;
};

TEST_F(DamagedStoreTest, IsMovedAsideWithAWarning) {
  overwrite(0, 100);
  {
    ResponseStore store(options());
    EXPECT_EQ(store.size().count, 0);
    store.put(turn("new"), kNow);
    EXPECT_TRUE(store.find("new", kNow));
  }
  EXPECT_TRUE(std::filesystem::exists(aside(1)));
  EXPECT_NE(warnings_.find(aside(1).string()), std::string::npos) << warnings_;
  overwrite(0, 100);
  ResponseStore store(options());
  EXPECT_TRUE(std::filesystem::exists(aside(2)));
}

TEST_F(DamagedStoreTest, IsFoundOutInsideTheFile) {
  overwrite(4096 * 3, 4096 * 20);
  ResponseStore store(options());
  EXPECT_EQ(store.size().count, 0);
  EXPECT_TRUE(std::filesystem::exists(aside(1)));
}

TEST_F(DamagedStoreTest, IsFoundOutWhileInUse) {
  ResponseStore store(options());
  overwrite(4096 * 2, size_t{4096} * 900);
  for (int i = 0; i < 200; ++i) {
    store.find(fmt::format("r{}", i), kNow);
  }
  store.put(turn("new"), kNow);
  EXPECT_TRUE(store.find("new", kNow));
  EXPECT_TRUE(std::filesystem::exists(aside(1)));
}

TEST_F(DamagedStoreTest, ACutFileLosesNothingButItself) {
  for (std::uintmax_t bytes : {40'000U, 5000U, 99U, 1U}) {
    std::filesystem::resize_file(options().file, bytes);
    ResponseStore store(options());
    EXPECT_EQ(store.size().count, 0) << bytes;
    store.put(turn("new"), kNow);
  }
}

TEST_F(ResponseStoreTest, AForeignDatabaseIsLeftAlone) {
  {
    SqliteDatabase other(options().file);
    other.execute("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (5);");
  }
  EXPECT_EQ(
      kind_of([&] { ResponseStore store(options()); }),
      ErrorKind::bad_file);
  SqliteDatabase other(options().file);
  EXPECT_EQ(other.integer("SELECT x FROM theirs"), 5);
}

TEST_F(ResponseStoreTest, ANewerSchemaIsRefused) {
  {
    ResponseStore store(options());
    store.put(turn("a"), kNow);
  }
  {
    SqliteDatabase newer(options().file);
    newer.execute("PRAGMA user_version = 2");
  }
  try {
    ResponseStore store(options());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_file);
    EXPECT_NE(std::string(error.what()).find("schema 2"), std::string::npos);
  }
}

TEST_F(ResponseStoreTest, AFolderThatIsNotThereIsAnError) {
  ResponseStoreOptions nowhere;
  nowhere.file = folder_.path() / "no" / "such" / "responses.db";
  EXPECT_EQ(
      kind_of([&] { ResponseStore store(nowhere); }),
      ErrorKind::internal);
}

TEST_F(ResponseStoreTest, ThreadsAndASecondProcessShareIt) {
  ResponseStore first(options());
  ResponseStore second(options());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      ResponseStore& store = t % 2 == 0 ? first : second;
      for (int i = 0; i < 10; ++i) {
        std::string id = fmt::format("{}-{}", t, i);
        store.put(turn(id), kNow);
        EXPECT_TRUE(store.find(id, kNow));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(first.size().count, 40);
  EXPECT_EQ(second.size().count, 40);
}

}  // namespace
}  // namespace mlxx::api
