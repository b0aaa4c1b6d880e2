#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "mlxx/core/borrowed_array.h"
#include "mlxx/core/dtype.h"
#include "mlxx/core/materialize.h"

namespace mlxx {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

bool is_compact(const mx::array& a) {
  return a.flags().row_contiguous && a.data_size() == a.size() &&
      a.offset() == 0;
}

bool same_values(const mx::array& a, const mx::array& b) {
  return a.dtype() == b.dtype() && mx::array_equal(a, b).item<bool>();
}

// `a` is compact besides.
bool same_bytes(mx::array a, mx::array b) {
  b = mx::contiguous(b, false, mx::Device::cpu);
  mx::eval(a, b);
  return a.dtype() == b.dtype() && a.shape() == b.shape() && is_compact(a) &&
      std::memcmp(a.data<char>(), b.data<char>(), a.nbytes()) == 0;
}

size_t active_memory() {
  mx::synchronize();
  return mx::get_active_memory();
}

TEST(MaterializeCopy, LetsALargeBufferGo) {
  size_t before = active_memory();
  std::optional<mx::array> big = mx::ones({64, 1 << 18}, mx::float32);
  big->eval();
  ASSERT_GE(active_memory(), before + 64 * kMiB);
  // Both kinds of parts: dense rows, and columns.
  mx::array rows = materialize_copy(mx::slice(*big, {3, 0}, {4, 1 << 18}));
  mx::array columns = materialize_copy(mx::slice(*big, {0, 0}, {64, 16}));
  mx::eval(rows, columns);
  big.reset();
  EXPECT_LT(active_memory(), before + 2 * kMiB);
  EXPECT_TRUE(is_compact(rows));
  EXPECT_TRUE(is_compact(columns));
  EXPECT_EQ(mx::sum(rows).item<float>(), 262144.0f);
  EXPECT_EQ(mx::sum(columns).item<float>(), 1024.0f);
}

// Why it exists. If this fails, MLX's own has become enough.
TEST(MaterializeCopy, CopyOfMlxKeepsTheLargeBuffer) {
  size_t before = active_memory();
  std::optional<mx::array> big = mx::ones({64, 1 << 18}, mx::float32);
  mx::array part = mx::copy(mx::slice(*big, {3, 0}, {4, 1 << 18}));
  // All but the last row: dense enough for contiguous() to share.
  mx::array most = mx::contiguous(mx::slice(*big, {0, 0}, {64, 1 << 18}));
  mx::eval(part, most);
  EXPECT_EQ(most.data<float>(), big->data<float>());
  big.reset();
  EXPECT_GE(active_memory(), before + 64 * kMiB);
}

TEST(MaterializeCopy, EveryDtypeAndLayout) {
  for (const auto& row : dtypes()) {
    mx::Device device(mx::Device::cpu);
    mx::array bytes = mx::astype(
        mx::arange(24 * row.size) * mx::array(37) % mx::array(251),
        mx::uint8,
        device);
    if (row.dtype == mx::bool_) {
      bytes = mx::astype(bytes > mx::array(uint8_t{99}), mx::uint8, device);
    }
    mx::array a =
        mx::reshape(mx::view(bytes, row.dtype, device), {2, 3, 4}, device);
    for (const auto& value :
         {a,
          mx::transpose(a, device),
          mx::transpose(a, {1, 0, 2}, device),
          mx::slice(a, {0, 1, 0}, {2, 3, 4}, {1, 1, 2}, device),
          mx::slice(a, {0, 0, 3}, {2, 3, -5}, {1, 1, -1}, device),
          mx::broadcast_to(
              mx::slice(a, {0, 0, 0}, {2, 3, 1}, device),
              {2, 3, 7},
              device),
          mx::slice(a, {1, 1, 1}, {1, 2, 3}, device),
          mx::zeros({0}, row.dtype, device),
          mx::zeros({3, 0, 2}, row.dtype, device),
          mx::reshape(
              mx::slice(a, {1, 2, 3}, {2, 3, 4}, device),
              {},
              device)}) {
      EXPECT_TRUE(same_bytes(materialize_copy(value, device), value))
          << row.name;
    }
  }
}

TEST(MaterializeCopy, SharesNothingEvenWithADenseArray) {
  mx::array a = mx::ones({1 << 20});
  mx::array scalar(3.0f);
  a.eval();
  mx::array copy = materialize_copy(a);
  mx::array scalar_copy = materialize_copy(scalar);
  mx::eval(copy, scalar_copy);
  EXPECT_NE(copy.data<float>(), a.data<float>());
  EXPECT_NE(scalar_copy.data<float>(), scalar.data<float>());
  EXPECT_EQ(scalar_copy.item<float>(), 3.0f);
}

TEST(MaterializeCopy, LetsBorrowedMemoryGo) {
  if (!can_borrow_memory()) {
    GTEST_SKIP() << "this libmlx has another allocator";
  }
  auto owner = std::make_shared<std::vector<float>>(1024, 2.0f);
  std::weak_ptr<std::vector<float>> watch = owner;
  const auto* data = reinterpret_cast<const std::byte*>(owner->data() + 4);
  std::optional<mx::array> borrowed =
      borrow_memory(std::move(owner), data, {1000}, mx::float32);
  mx::array copy = materialize_copy(*borrowed);
  copy.eval();
  borrowed.reset();
  mx::synchronize();
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(mx::sum(copy).item<float>(), 2000.0f);
}

TEST(MaterializeCopy, IsLazy) {
  mx::array copy = materialize_copy(mx::ones({4}) * mx::array(2.0f));
  EXPECT_FALSE(copy.is_available());
  EXPECT_EQ(mx::sum(copy).item<float>(), 8.0f);
}

TEST(MaterializeCopy, ItsGradientsAreTheIdentity) {
  for (const mx::Shape& shape :
       {mx::Shape{}, mx::Shape{5}, mx::Shape{2, 3}, mx::Shape{3, 0}}) {
    mx::array x = mx::random::normal(shape, mx::float32, mx::random::key(1));
    mx::array along =
        mx::random::normal(shape, mx::float32, mx::random::key(2));
    auto copy = [](const std::vector<mx::array>& inputs) {
      return std::vector<mx::array>{materialize_copy(inputs[0])};
    };
    auto back = mx::vjp(copy, {x}, {along}).second[0];
    EXPECT_TRUE(same_values(back, along)) << x.size();
    auto forth = mx::jvp(copy, {x}, {along}).second[0];
    EXPECT_TRUE(same_values(forth, along)) << x.size();
  }
  // Second order, through a strided view.
  auto cube = [](const mx::array& x) {
    mx::array t = materialize_copy(mx::transpose(x));
    return mx::sum(t * t * t);
  };
  auto slope = [&](const mx::array& x) { return mx::sum(mx::grad(cube)(x)); };
  mx::array x = mx::reshape(mx::arange(6.0f), {2, 3});
  EXPECT_TRUE(same_values(mx::grad(slope)(x), x * mx::array(6.0f)));
}

TEST(MaterializeCopy, InsideVmap) {
  mx::array x = mx::reshape(mx::arange(12.0f), {3, 4});
  auto each = mx::vmap(
      [](const mx::array& row) { return materialize_copy(row); },
      1,
      0);
  EXPECT_TRUE(same_values(each(x), mx::transpose(x)));
}

TEST(MaterializeCopy, InsideACompiledFunction) {
  auto function = [](const std::vector<mx::array>& inputs) {
    return std::vector<mx::array>{materialize_copy(inputs[0])};
  };
  for (bool shapeless : {false, true}) {
    auto compiled = mx::compile(function, shapeless);
    for (const mx::Shape& shape :
         {mx::Shape{2, 3}, mx::Shape{4, 5}, mx::Shape{1, 7}, mx::Shape{0, 2}}) {
      mx::array x = mx::transpose(mx::random::normal(shape));
      x.eval();
      mx::array copy = compiled({x})[0];
      EXPECT_TRUE(same_bytes(copy, x)) << shapeless << " " << x.size();
      if (x.size() > 0) {
        EXPECT_NE(copy.data<float>(), x.data<float>());
      }
    }
    // The large buffer goes here too.
    size_t before = active_memory();
    std::optional<mx::array> big = mx::ones({1 << 22, 4});
    mx::array part = mx::slice(*big, {0, 0}, {2, 4});
    part.eval();
    mx::array copy = compiled({part})[0];
    copy.eval();
    big.reset();
    part = mx::array(0);
    EXPECT_LT(active_memory(), before + kMiB);
  }
}

}  // namespace
}  // namespace mlxx
