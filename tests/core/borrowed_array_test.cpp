#include "mlxx/core/borrowed_array.h"

#include <array>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "tests/core/error_of.h"

namespace mlxx {
namespace {

constexpr size_t kCount = 1024;

// Floats with room before them.
struct Owner {
  Owner() : floats(kCount + 4) {
    std::iota(floats.begin(), floats.end(), 0.0f);
  }
  const std::byte* data() const {
    return reinterpret_cast<const std::byte*>(floats.data() + 4);
  }
  std::vector<float> floats;
};

class BorrowedArray : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_borrow_memory()) {
      GTEST_SKIP() << "this libmlx has another allocator";
    }
  }
  mx::array borrow() {
    return *borrow_memory(
        owner_,
        owner_->data(),
        {32, static_cast<int>(kCount / 32)},
        mx::float32);
  }
  std::shared_ptr<Owner> owner_ = std::make_shared<Owner>();
};

// A libmlx without any GPU backend has the CPU's allocator.
TEST(BorrowedArrays, PossibleWithEveryCpuLibrary) {
  EXPECT_TRUE(can_borrow_memory() || mx::is_available(mx::Device::gpu));
}

TEST_F(BorrowedArray, ReadsInPlaceAndIsNotCounted) {
  size_t before = mx::get_active_memory();
  mx::array a = borrow();
  EXPECT_EQ(mx::get_active_memory(), before);
  EXPECT_TRUE(a.is_available());
  EXPECT_TRUE(a.flags().row_contiguous);
  EXPECT_EQ(a.data<float>(), owner_->floats.data() + 4);
  EXPECT_EQ(mx::sum(a).item<float>(), 4.0f * kCount + 1023.0f * kCount / 2);
}

TEST_F(BorrowedArray, TheOwnerLivesAsLongAsTheLastView) {
  std::weak_ptr<Owner> watch = owner_;
  std::optional<mx::array> a = borrow();
  owner_.reset();
  std::optional<mx::array> view = mx::slice(*a, {3, 0}, {4, 32});
  view->eval();
  a.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(mx::sum(*view).item<float>(), 100.0f * 32 + 31.0f * 16);
  view.reset();
  mx::synchronize();
  EXPECT_TRUE(watch.expired());
}

// Operations that write into their first input when nobody else holds it.
TEST_F(BorrowedArray, NoOperationWritesToIt) {
  std::vector<float> before = owner_->floats;
  auto evaluate = [](mx::array value) { value.eval(); };
  evaluate(mx::negative(borrow()));
  evaluate(mx::add(borrow(), mx::array(1.0f)));
  evaluate(mx::exp(mx::reshape(borrow(), {-1})));
  evaluate(mx::softmax(borrow(), -1));
  evaluate(mx::sort(borrow(), -1));
  evaluate(mx::slice_update(
      borrow(),
      mx::zeros({2, 2}),
      mx::Shape{0, 0},
      mx::Shape{2, 2}));
  evaluate(mx::put_along_axis(
      borrow(),
      mx::zeros({32, 1}, mx::int32),
      mx::array(7.0f),
      1));
  evaluate(mx::view(borrow(), mx::uint32) + mx::array(1u));
  evaluate(mx::cumsum(borrow(), 0));
  evaluate(mx::contiguous(mx::transpose(borrow())));
  EXPECT_EQ(owner_->floats, before);
}

TEST_F(BorrowedArray, MisalignedMemoryIsNotBorrowed) {
  const std::byte* odd = owner_->data() + 1;
  EXPECT_EQ(borrow_memory(owner_, odd, {4}, mx::float32), std::nullopt);
  EXPECT_EQ(borrow_memory(owner_, odd, {4}, mx::bfloat16), std::nullopt);
  EXPECT_NE(borrow_memory(owner_, odd, {4}, mx::uint8), std::nullopt);
}

TEST_F(BorrowedArray, AnAxisBelowZeroIsRefused) {
  EXPECT_ERROR(
      borrow_memory(owner_, owner_->data(), {4, -1}, mx::float32),
      "internal",
      "an axis of -1");
}

}  // namespace
}  // namespace mlxx
