#include "mlxx/capi/delta_queue.h"

#include <atomic>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include "mlxx/capi/mlx_thread.h"

namespace mlxx::capi {
namespace {

TEST(DeltaQueue, PiecesArriveInOrderAndThenTheEnd) {
  DeltaQueue queue;
  std::thread writer([&] {
    EXPECT_TRUE(queue.begin());
    for (int i = 0; i < 1000; ++i) {
      EXPECT_TRUE(queue.push(std::to_string(i)));
    }
    queue.finish(nullptr);
  });
  int expected = 0;
  while (auto piece = queue.pop()) {
    EXPECT_EQ(*piece, std::to_string(expected++));
  }
  EXPECT_EQ(expected, 1000);
  queue.join();
  writer.join();
}

TEST(DeltaQueue, CancelStopsTheWriter) {
  DeltaQueue queue;
  std::thread writer([&] {
    EXPECT_TRUE(queue.begin());
    while (queue.push("x")) {
    }
    queue.finish(nullptr);
  });
  EXPECT_TRUE(queue.pop());
  queue.cancel();
  while (queue.pop()) {
  }
  queue.join();
  writer.join();
}

TEST(DeltaQueue, CancelledBeforeItBeginsNobodyWaits) {
  DeltaQueue queue;
  std::thread canceller([&] { queue.cancel(); });
  EXPECT_EQ(queue.pop(), std::nullopt);
  queue.join();
  canceller.join();
  EXPECT_FALSE(queue.begin());
}

TEST(DeltaQueue, ErrorArrivesAfterThePieces) {
  DeltaQueue queue;
  queue.push("a");
  queue.finish(std::make_exception_ptr(std::runtime_error("broken")));
  EXPECT_EQ(queue.pop(), "a");
  EXPECT_EQ(queue.pop(), std::nullopt);
  EXPECT_THROW(queue.join(), std::runtime_error);
}

TEST(MlxThread, RunsJobsInOrderOnOneThreadAndFinishesThem) {
  std::atomic<int> done = 0;
  std::thread::id first;
  {
    MlxThread thread;
    thread.post([&] { first = std::this_thread::get_id(); });
    for (int i = 0; i < 100; ++i) {
      thread.post([&, i] {
        EXPECT_EQ(done++, i);
        EXPECT_EQ(std::this_thread::get_id(), first);
      });
    }
  }
  EXPECT_EQ(done, 100);
  EXPECT_NE(first, std::this_thread::get_id());
}

}  // namespace
}  // namespace mlxx::capi
