#pragma once

#include "mlxx/core/parameters.h"

namespace mlxx::nn {

// A table of vectors, which may be quantized, and which a tied output head
// uses as a matrix. By the adapters of the scope, if there is one
// (nn/row_adapters.h).
class Embedding {
 public:
  Embedding(int count, int size);

  // ids [...] -> [..., size]
  mx::array operator()(const mx::array& ids) const;
  // [..., size] -> [..., count]
  mx::array as_linear(const mx::array& x) const;

  void visit(const std::string& prefix, const ParameterVisitor& visitor);

  const Parameter& weight() const {
    return weight_;
  }

 private:
  mx::array take(const mx::array& ids) const;
  mx::array product(const mx::array& x) const;

  Parameter weight_;  // [count, size]
};

}  // namespace mlxx::nn
