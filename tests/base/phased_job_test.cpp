#include "mlxx/base/phased_job.h"

#include <vector>

#include <gtest/gtest.h>

namespace mlxx {
namespace {

TEST(PhasedJob, DoesEveryItemOnceAndPhasesInOrder) {
  for (int threads : {1, 2, 3, 5}) {
    PhasedJob job(std::make_shared<ThreadPool>(threads));
    // Of very different sizes, some empty.
    std::vector<PhasedJob::Phase> phases;
    for (int p = 0; p < 60; ++p) {
      phases.push_back({p % 7 == 3 ? 0 : (p * 37) % 101, 1 + p % 5});
    }
    for (int round = 0; round < 20; ++round) {
      std::vector<std::vector<int>> done(phases.size());
      for (size_t p = 0; p < phases.size(); ++p) {
        done[p].assign(phases[p].items, 0);
      }
      std::atomic<int> too_early{0};
      job.run(phases, [&](int phase, int thread, int64_t begin, int64_t end) {
        EXPECT_TRUE(thread >= 0 && thread < threads);
        for (int64_t i = begin; i < end; ++i) {
          ++done[phase][i];
        }
        if (phase > 0) {
          for (int n : done[phase - 1]) {
            too_early += n != 1;
          }
        }
      });
      EXPECT_EQ(too_early, 0);
      for (const auto& items : done) {
        for (int n : items) {
          EXPECT_EQ(n, 1);
        }
      }
    }
  }
}

TEST(PhasedJob, GivesAThreadsNumberToOneCallAtATime) {
  constexpr int kThreads = 4;
  PhasedJob job(std::make_shared<ThreadPool>(kThreads));
  std::vector<PhasedJob::Phase> phases(50, {64, 1});
  std::atomic<int> inside[kThreads] = {};
  std::atomic<int> clashes{0};
  job.run(phases, [&](int, int thread, int64_t, int64_t) {
    clashes += inside[thread].fetch_add(1) != 0;
    inside[thread].fetch_sub(1);
  });
  EXPECT_EQ(clashes, 0);
}

TEST(PhasedJob, HasNothingToDoForNoPhases) {
  PhasedJob job(std::make_shared<ThreadPool>(2));
  job.run({}, [](int, int, int64_t, int64_t) { ADD_FAILURE(); });
}

}  // namespace
}  // namespace mlxx
