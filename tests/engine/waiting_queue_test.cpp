#include "mlxx/engine/waiting_queue.h"

#include <gtest/gtest.h>

namespace mlxx::engine {
namespace {

std::vector<uint64_t> take_all(WaitingQueue& queue, uint64_t tokens_each = 0) {
  std::vector<uint64_t> order;
  while (auto front = queue.front()) {
    order.push_back(front->id);
    queue.pop();
    queue.charge(front->tenant, tokens_each);
  }
  return order;
}

TEST(WaitingQueue, OneTenantIsServedInTheOrderOfItsRequests) {
  WaitingQueue queue;
  for (uint64_t id = 1; id <= 5; ++id) {
    queue.push({id, 0, "a"});
  }
  EXPECT_EQ(queue.size(), 5u);
  EXPECT_TRUE(queue.remove(3));
  EXPECT_FALSE(queue.remove(3));
  EXPECT_EQ(take_all(queue), (std::vector<uint64_t>{1, 2, 4, 5}));
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_FALSE(queue.front());
}

TEST(WaitingQueue, TenantsShareByTheirTokens) {
  WaitingQueue queue;
  for (uint64_t id = 1; id <= 6; ++id) {
    queue.push({id, 0, "many"});
  }
  queue.push({7, 0, "few"});
  queue.push({8, 0, "few"});
  EXPECT_EQ(
      take_all(queue, 10),
      (std::vector<uint64_t>{1, 7, 2, 8, 3, 4, 5, 6}));
}

TEST(WaitingQueue, WhoTakesMuchGetsTheTurnSeldom) {
  WaitingQueue queue;
  for (uint64_t id = 1; id <= 4; ++id) {
    queue.push({id, 0, "long"});
  }
  for (uint64_t id = 11; id <= 20; ++id) {
    queue.push({id, 0, "short"});
  }
  std::string order;
  while (auto front = queue.front()) {
    order += front->tenant[0];
    queue.pop();
    queue.charge(front->tenant, front->tenant == "long" ? 30 : 10);
  }
  EXPECT_EQ(order, "lssslssslsssls");
}

TEST(WaitingQueue, TimeWithoutRequestsIsNoCredit) {
  WaitingQueue queue;
  queue.push({1, 0, "late"});
  take_all(queue);
  for (uint64_t id = 2; id <= 9; ++id) {
    queue.push({id, 0, "busy"});
    if (id < 6) {
      take_all(queue, 100);
    }
  }
  queue.push({20, 0, "late"});
  queue.push({21, 0, "late"});
  queue.push({22, 0, "late"});
  // Had the idle time counted, all three would come first.
  auto order = take_all(queue, 100);
  EXPECT_LT(
      std::find(order.begin(), order.end(), 7u),
      std::find(order.begin(), order.end(), 22u));
}

TEST(WaitingQueue, HigherPrioritiesGoFirstButNobodyStarves) {
  WaitingQueue queue;
  uint64_t id = 0;
  queue.push({++id, -1, "low"});
  queue.push({++id, 0, "low"});
  int turns = 0;
  std::vector<int> served_at;  // turns at which low ones went
  for (; turns < 60; ++turns) {
    queue.push({++id, 5, "high"});
    auto front = queue.front();
    queue.pop();
    if (front->tenant == "low") {
      served_at.push_back(turns);
    }
  }
  ASSERT_EQ(served_at.size(), 2u);
  EXPECT_EQ(served_at[0], WaitingQueue::kPassedOver);
  EXPECT_LE(served_at[1], 2 * WaitingQueue::kPassedOver + 2);
}

}  // namespace
}  // namespace mlxx::engine
