#include "mlxx/base/thread_pool.h"

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace mlxx {
namespace {

TEST(ThreadPool, EveryPartRunsOncePerJob) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.size(), threads);
    std::vector<int> calls(threads);
    for (int job = 0; job < 1000; ++job) {
      pool.run([&](int part) { ++calls[part]; });
    }
    EXPECT_EQ(calls, std::vector<int>(threads, 1000));
  }
}

TEST(ThreadPool, SplitCoversEverythingInOrder) {
  ThreadPool pool(3);
  for (size_t count : {0u, 1u, 2u, 3u, 10u, 1000u}) {
    size_t at = 0;
    for (int thread = 0; thread < 3; ++thread) {
      auto range = pool.split(count, thread);
      EXPECT_EQ(range.begin, at);
      at = range.end;
    }
    EXPECT_EQ(at, count);
  }
}

// Workers sleep after a while without work, and must wake again.
TEST(ThreadPool, WorksAfterSleeping) {
  ThreadPool pool(2);
  for (int i = 0; i < 3; ++i) {
    std::atomic<int> calls = 0;
    pool.run([&](int) { ++calls; });
    EXPECT_EQ(calls, 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST(ThreadPool, JobsOfSeveralCallersDoNotMix) {
  ThreadPool pool(3);
  std::vector<std::jthread> callers;
  std::atomic<int> inside = 0;
  std::atomic<int> wrong = 0;
  std::atomic<int> total = 0;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int job = 0; job < 200; ++job) {
        std::atomic<int> mine = 0;
        pool.run([&](int) {
          if (++inside > 3) {
            ++wrong;
          }
          ++mine;
          --inside;
        });
        wrong += mine != 3;
        total += mine;
      }
    });
  }
  callers.clear();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(total, 4 * 200 * 3);
}

}  // namespace
}  // namespace mlxx
