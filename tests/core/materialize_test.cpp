#include "mlxx/core/materialize.h"

#include <gtest/gtest.h>

#include "mlxx/base/error.h"

namespace mlxx {
namespace {

std::vector<mx::array> lazy_arrays() {
  std::vector<mx::array> arrays;
  for (int i = 0; i < 10; ++i) {
    arrays.push_back(mx::full({256}, static_cast<float>(i), mx::float32));
  }
  return arrays;
}

TEST(Materializer, ReportsEveryChunkAndNothingTwice) {
  for (auto [chunk, reports] :
       {std::pair<size_t, size_t>{0, 10}, {2048, 5}, {size_t{1} << 30, 1}}) {
    std::vector<uint64_t> done;
    Materializer materializer(chunk, [&](uint64_t bytes) {
      done.push_back(bytes);
    });
    auto arrays = lazy_arrays();
    for (const auto& a : arrays) {
      materializer.add(a);
    }
    materializer.finish();
    EXPECT_EQ(done.size(), reports) << chunk;
    EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
    EXPECT_EQ(done.back(), 10u * 1024u);
    for (const auto& a : arrays) {
      EXPECT_TRUE(a.is_available());
    }
  }
}

TEST(Materializer, StopsWhereTheProgressThrows) {
  auto arrays = lazy_arrays();
  Materializer materializer(2048, [](uint64_t bytes) {
    if (bytes >= 4096) {
      fail(ErrorKind::cancelled, "load", "stopped");
    }
  });
  size_t added = 0;
  EXPECT_THROW(
      {
        for (const auto& a : arrays) {
          materializer.add(a);
          ++added;
        }
      },
      Error);
  EXPECT_EQ(added, 3u);
  EXPECT_FALSE(arrays[4].is_available());
}

}  // namespace
}  // namespace mlxx
