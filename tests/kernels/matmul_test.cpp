// Products of dense matrices and the gradient of packed ones, against MLX's.
#include "mlxx/kernels/matmul/matmul.h"

#include "tests/core/error_of.h"
#include "tests/core/gradient_check.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::kernels {
namespace {

using Arrays = std::vector<mx::array>;

mx::array rounded(const mx::Shape& shape, uint64_t seed, mx::Dtype dtype) {
  return mx::astype(normal(shape, seed), dtype);
}

Selection with(InstructionSet set, int threads) {
  Selection selection = select_best();
  selection.instruction_set = set;
  selection.threads = std::make_shared<ThreadPool>(threads);
  return selection;
}

// In float32 whatever the dtypes are.
mx::array reference(const mx::array& x, const mx::array& weight) {
  return mx::matmul(
      mx::astype(x, mx::float32),
      mx::transpose(mx::astype(weight, mx::float32)));
}

struct Shape {
  int rows;
  int out;
  int in;
};

// Edges of tiles and of blocks, and adapters of low rank.
const Shape kShapes[] = {
    {1, 1, 1},
    {3, 33, 65},
    {25, 8, 1025},
    {97, 1030, 40},
    {130, 16, 96},
    {50, 70, 513},
    // More rows than are rounded at a time, more columns than are packed.
    {2051, 5, 12},
    {2, 1029, 3}};

TEST(Matmul, GivesWhatMlxGives) {
  for (auto set : available_instruction_sets()) {
    for (const Shape& shape : kShapes) {
      for (auto x_dtype : {mx::float32, mx::bfloat16, mx::float16}) {
        for (auto w_dtype : {mx::float32, mx::bfloat16, mx::float16}) {
          mx::array x = rounded({shape.rows, shape.in}, 1, x_dtype);
          mx::array w = rounded({shape.out, shape.in}, 2, w_dtype);
          mx::array y = matmul_transposed(x, w, with(set, 2));
          mx::Dtype expected = mx::promote_types(x_dtype, w_dtype);
          EXPECT_EQ(y.dtype(), expected);
          float allowed = expected == mx::float32 ? 2e-6f
              : expected == mx::float16           ? 5e-4f
                                                  : 4e-3f;
          EXPECT_LE(relative_error(y, reference(x, w)), allowed)
              << to_string(set) << " " << shape.rows << " " << shape.out << " "
              << shape.in << " " << x_dtype << " " << w_dtype;
        }
      }
    }
  }
}

TEST(Matmul, TakesViewsAndManyAxes) {
  Selection selection = select_best();
  mx::array x = normal({2, 3, 5, 40}, 1);
  mx::array w = normal({24, 40}, 2);
  mx::array y = matmul_transposed(x, w, selection);
  EXPECT_EQ(y.shape(), (mx::Shape{2, 3, 5, 24}));
  EXPECT_LE(relative_error(y, reference(x, w)), 2e-6f);
  // Every second column, rows in reverse, one number everywhere.
  mx::array wide = normal({24, 80}, 3);
  mx::array odd = mx::slice(wide, {0, 0}, {24, 80}, {1, 2});
  EXPECT_LE(
      relative_error(matmul_transposed(x, odd, selection), reference(x, odd)),
      2e-6f);
  mx::array same = mx::broadcast_to(mx::array(0.5f), {7, 40});
  EXPECT_LE(
      relative_error(matmul_transposed(same, w, selection), reference(same, w)),
      2e-6f);
  EXPECT_EQ(
      matmul_transposed(mx::zeros({0, 40}), w, selection).shape(),
      (mx::Shape{0, 24}));
  mx::array nothing =
      matmul_transposed(mx::zeros({3, 0}), mx::zeros({4, 0}), selection);
  EXPECT_TRUE(same_bits(nothing, mx::zeros({3, 4})));
}

TEST(Matmul, RefusesShapesThatDoNotFit) {
  Selection selection = select_best();
  EXPECT_ERROR(
      matmul(mx::zeros({2, 3}), mx::zeros({4, 5}), selection),
      "internal",
      "[matmul] 3 input features for a matrix with 2 axes and 4 rows");
  EXPECT_ERROR(
      matmul(mx::zeros({2, 3}), mx::zeros({3}), selection),
      "internal",
      "[matmul] 3 input features for a matrix with 1 axes and 3 rows");
}

TEST(Matmul, RowsHaveTheSameBitsWithAnyThreadsAndCompany) {
  if (!select_best().has_cpu_kernels()) {
    GTEST_SKIP() << "no CPU kernels";
  }
  mx::array x = normal({130, 1100}, 1);
  mx::array w = normal({70, 1100}, 2);
  for (auto set : available_instruction_sets()) {
    mx::array y = matmul_transposed(x, w, with(set, 1));
    for (int threads : {2, 3}) {
      EXPECT_TRUE(same_bits(y, matmul_transposed(x, w, with(set, threads))))
          << to_string(set) << " " << threads;
    }
    for (int rows : {1, 2, 8, 33}) {
      mx::array few = mx::slice(x, {0, 0}, {rows, 1100});
      EXPECT_TRUE(same_bits(
          mx::slice(y, {0, 0}, {rows, 70}),
          matmul_transposed(few, w, with(set, 2))))
          << to_string(set) << " " << rows;
    }
  }
}

TEST(Matmul, HasTheDerivativesAsGradients) {
  for (auto set : available_instruction_sets()) {
    Selection selection = with(set, 2);
    auto function = [&](const Arrays& x) {
      return Arrays{matmul_transposed(x[0], x[1], selection)};
    };
    for (const Shape& shape :
         {Shape{3, 5, 7}, Shape{40, 16, 33}, Shape{26, 8, 64}}) {
      EXPECT_TRUE(check_gradient(
          function,
          {normal({shape.rows, shape.in}, 1),
           normal({shape.out, shape.in}, 2)}))
          << to_string(set) << " " << shape.rows;
    }
  }
}

// Of the gradient itself too: a product is linear in each argument.
TEST(Matmul, HasGradientsOfItsGradients) {
  Selection selection = select_best();
  auto square = [&](const Arrays& x) {
    return Arrays{mx::square(matmul_transposed(x[0], x[1], selection))};
  };
  auto gradient = [&](const Arrays& x) {
    return mx::vjp(square, x, {mx::ones({6, 5})}).second;
  };
  EXPECT_TRUE(check_gradient(gradient, {normal({6, 9}, 1), normal({5, 9}, 2)}));
}

TEST(Matmul, GradientsHaveTheDtypesOfWhatTheyAreOf) {
  Selection selection = select_best();
  mx::array cotangent = rounded({2, 20, 48}, 3, mx::bfloat16);
  mx::array x = rounded({2, 20, 64}, 1, mx::bfloat16);
  mx::array w = rounded({48, 64}, 2, mx::bfloat16);
  auto ours = mx::vjp(
                  [&](const Arrays& in) {
                    return Arrays{matmul_transposed(in[0], in[1], selection)};
                  },
                  {x, w},
                  {cotangent})
                  .second;
  auto wide =
      mx::vjp(
          [&](const Arrays& in) { return Arrays{reference(in[0], in[1])}; },
          {x, w},
          {mx::astype(cotangent, mx::float32)})
          .second;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ours[i].dtype(), mx::bfloat16);
    EXPECT_EQ(ours[i].shape(), wide[i].shape());
    EXPECT_LE(relative_error(ours[i], wide[i]), 4e-3f) << i;
  }
}

}  // namespace
}  // namespace mlxx::kernels
