#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "mlxx/kernels/stateful_primitive.h"
#include "tests/kernels/relative_error.h"

// What recurrent ops are compared with: the numbers of an array as doubles, and
// the kernels of every instruction set.
namespace mlxx::kernels {

// As the program computes on a CPU by default: each fused function would run
// the C++ compiler first.
class RecurrentOp : public testing::Test {
 protected:
  void SetUp() override {
    mx::set_compile_mode(mx::CompileMode::no_fuse);
  }
};

inline std::vector<double> numbers(const mx::array& a) {
  mx::array flat = mx::contiguous(mx::astype(a, mx::float32));
  mx::eval(flat);
  const float* data = flat.data<float>();
  return {data, data + flat.size()};
}

// |a - b| / |b| in the Frobenius norm.
inline double distance(const mx::array& a, const std::vector<double>& b) {
  auto x = numbers(a);
  EXPECT_EQ(x.size(), b.size());
  double gap = 0;
  double norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    gap += (x[i] - b[i]) * (x[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(gap / norm);
}

inline std::vector<Selection> every_selection() {
  std::vector<Selection> selections;
  for (InstructionSet set : available_instruction_sets()) {
    for (int threads : {1, 3}) {
      selections.push_back(Selection{
          .instruction_set = set,
          .threads = std::make_shared<ThreadPool>(threads)});
    }
  }
  return selections;
}

inline mx::array sequence(const mx::array& a, int row) {
  mx::Shape from(a.ndim(), 0);
  mx::Shape to = a.shape();
  from[0] = row;
  to[0] = row + 1;
  return mx::slice(a, from, to);
}

inline mx::array tokens(const mx::array& a, int begin, int end) {
  mx::Shape from(a.ndim(), 0);
  mx::Shape to = a.shape();
  from[1] = begin;
  to[1] = end;
  return mx::slice(a, from, to);
}

inline double softplus(double x) {
  return x > 30 ? x : std::log1p(std::exp(x));
}

}  // namespace mlxx::kernels
