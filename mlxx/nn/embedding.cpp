#include "mlxx/nn/embedding.h"

#include "mlxx/kernels/quantized_matmul/quantized_matmul.h"
#include "mlxx/kernels/row_lookup/row_lookup.h"
#include "mlxx/nn/row_adapters.h"
#include "mlxx/nn/training_rows.h"

namespace mlxx::nn {

Embedding::Embedding(int count, int size)
    : weight_({count, size}, Parameter::Kind::matrix) {}

mx::array Embedding::operator()(const mx::array& ids) const {
  if (const RowAdapters* adapters = active_adapters()) {
    if (auto rows = adapters->rows(weight_, ids, [&] { return take(ids); })) {
      return *rows;
    }
  }
  return take(ids);
}

mx::array Embedding::as_linear(const mx::array& x) const {
  if (const RowAdapters* adapters = active_adapters()) {
    if (auto y = adapters->head(weight_, x, [&] { return product(x); })) {
      return *y;
    }
  }
  return product(x);
}

mx::array Embedding::take(const mx::array& ids) const {
  if (weight_.packed() || weight_.quantization()) {
    return kernels::dequantize_rows(weight_, ids);
  }
  return training_rows() ? kernels::looked_up_rows(weight_.value(), ids)
                         : mx::take(weight_.value(), ids, 0);
}

mx::array Embedding::product(const mx::array& x) const {
  if (weight_.packed() || weight_.quantization()) {
    return kernels::quantized_matmul(x, weight_);
  }
  if (const auto& product = weight_.product()) {
    return (*product)(x, weight_.value());
  }
  return mx::matmul(x, mx::transpose(weight_.value()));
}

void Embedding::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  visitor(prefix + ".weight", weight_);
}

}  // namespace mlxx::nn
