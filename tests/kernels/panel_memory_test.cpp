#include "mlxx/kernels/panel_memory.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "mlxx/core/mlx.h"

namespace mlxx::kernels {
namespace {

struct Taken {
  std::shared_ptr<std::byte> data;
  size_t bytes;

  uintptr_t begin() const {
    return reinterpret_cast<uintptr_t>(data.get());
  }
};

void expect_apart(std::vector<Taken>& all) {
  std::ranges::sort(all, {}, &Taken::begin);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].begin() % 64, 0u);
    if (i > 0) {
      EXPECT_LE(all[i - 1].begin() + all[i - 1].bytes, all[i].begin());
    }
  }
}

TEST(PanelMemory, PartsAreAlignedAndApart) {
  std::mt19937 random(1);
  // Less is expected than is taken, then more; sizes with and without room.
  for (size_t expected : {size_t{0}, size_t{3} << 20, size_t{200} << 20}) {
    PanelMemory memory(expected);
    std::vector<Taken> all;
    for (int i = 0; i < 60; ++i) {
      size_t bytes = 1 + random() % (i % 10 == 0 ? 9 << 20 : 700'000);
      all.push_back({memory.take(bytes), bytes});
      // Touched to the last byte.
      std::fill_n(all.back().data.get(), bytes, std::byte(i));
    }
    expect_apart(all);
  }
}

TEST(PanelMemory, OnePieceIsAsLargeAsWhatIsExpected) {
  PanelMemory memory(size_t{10} << 20);
  size_t before = mx::get_active_memory();
  std::vector<Taken> all;
  for (int i = 0; i < 10; ++i) {
    all.push_back({memory.take(1 << 20), 1 << 20});
  }
  // Nothing between them, and MLX counts it all.
  expect_apart(all);
  EXPECT_EQ(all.back().begin() - all.front().begin(), size_t{9} << 20);
  size_t counted = mx::get_active_memory() - before;
  EXPECT_GE(counted, size_t{10} << 20);
  EXPECT_LE(counted, (size_t{12} << 20) + 4096);
}

TEST(PanelMemory, APieceGoesBackWithItsLastPart) {
  size_t before = mx::get_active_memory();
  std::shared_ptr<std::byte> last;
  {
    PanelMemory memory(1 << 20);
    auto first = memory.take(1000);
    last = memory.take(1000);
    *first = std::byte{1};
  }
  EXPECT_GT(mx::get_active_memory(), before);
  std::fill_n(last.get(), 1000, std::byte{7});
  last.reset();
  EXPECT_EQ(mx::get_active_memory(), before);
}

TEST(PanelMemory, AMatrixAloneHasNoMoreThanItNeeds) {
  size_t before = mx::get_active_memory();
  auto small = take_panel_memory(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(small.get()) % 64, 0u);
  EXPECT_LE(mx::get_active_memory() - before, 2000u);
  size_t many = size_t{20} << 20;
  auto large = take_panel_memory(many);
  std::fill_n(large.get(), many, std::byte{3});
  EXPECT_LE(mx::get_active_memory() - before, many + (size_t{5} << 20));
  small.reset();
  large.reset();
  EXPECT_EQ(mx::get_active_memory(), before);
}

}  // namespace
}  // namespace mlxx::kernels
