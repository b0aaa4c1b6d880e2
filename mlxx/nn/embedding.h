#pragma once

#include "mlxx/core/parameters.h"

namespace mlxx::nn {

// A table of vectors, which may be quantized, and which a tied output head
// uses as a matrix.
class Embedding {
 public:
  Embedding(int count, int size);

  // ids [...] -> [..., size]
  mx::array operator()(const mx::array& ids) const;
  // [..., size] -> [..., count]
  mx::array as_linear(const mx::array& x) const;

  void visit(const std::string& prefix, const ParameterVisitor& visitor);

 private:
  Parameter weight_;  // [count, size]
};

}  // namespace mlxx::nn
