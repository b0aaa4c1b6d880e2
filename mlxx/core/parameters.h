#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "mlxx/core/mlx.h"

namespace mlxx {

// How a matrix is packed, in MLX's terms (mx::quantize).
struct QuantizationSpec {
  int group_size;
  int bits;
  std::string mode;  // "affine", "mxfp4", "nvfp4", "mxfp8"

  bool operator==(const QuantizationSpec&) const = default;
};

// A weight in MLX's form.
struct WeightArrays {
  mx::array weight;  // packed uint32 [out, in*bits/32] if quantized
  std::optional<mx::array> scales;  // [out, in/group]
  std::optional<mx::array> biases;  // [out, in/group], affine only
  // nvfp4 only, float32: one number for the matrix, or [N] for N of them; as
  // mx::quantize takes it, 2688 times what all scales are multiplied with.
  std::optional<mx::array> global_scale = {};
};

// A matrix [out, in] in the form that a kernel wants, resident instead of
// MLX's form.
class PackedWeights {
 public:
  virtual ~PackedWeights() = default;
  // x [..., in] -> x @ matrix.T [..., out], in x's dtype.
  virtual mx::array matmul(const mx::array& x) const = 0;
  // ids [...] -> rows of the matrix [..., in].
  virtual mx::array take_rows(const mx::array& ids) const = 0;
  // MLX's form again, for saving; a copy.
  virtual WeightArrays restore() const = 0;
  virtual size_t nbytes() const = 0;
};

// x [..., in], weight [out, in] -> x @ weight.T [..., out]: how a dense matrix
// in MLX's form is multiplied, differentiable in both.
using DenseProduct =
    std::function<mx::array(const mx::array& x, const mx::array& weight)>;

// One named parameter of a module: declared with its shape when the module is
// made, filled when the checkpoint is read. A matrix is [out, in] and may be
// quantized; everything else is stored as it is.
class Parameter {
 public:
  enum class Kind { tensor, matrix };

  Parameter() = default;
  Parameter(mx::Shape shape, Kind kind)
      : shape_(std::move(shape)), kind_(kind) {}

  const mx::Shape& shape() const {
    return shape_;
  }
  Kind kind() const {
    return kind_;
  }
  bool is_set() const {
    return arrays_ || packed_;
  }
  const std::optional<QuantizationSpec>& quantization() const {
    return quantization_;
  }
  // Null unless a kernel's form is resident.
  const std::shared_ptr<const PackedWeights>& packed() const {
    return packed_;
  }

  // What to multiply a dense matrix in MLX's form with; null: mx::matmul. It
  // stays when the values change, as they do in training.
  const std::shared_ptr<const DenseProduct>& product() const {
    return product_;
  }
  void set_product(std::shared_ptr<const DenseProduct> product) {
    product_ = std::move(product);
  }

  // MLX's form; only where packed() is null and is_set().
  const WeightArrays& arrays() const {
    return *arrays_;
  }
  const mx::array& value() const {
    return arrays_->weight;
  }
  const mx::array& scales() const {
    return *arrays_->scales;
  }
  // MLX's form whatever is resident.
  WeightArrays restore() const {
    return packed_ ? packed_->restore() : *arrays_;
  }

  void set(
      WeightArrays arrays,
      std::optional<QuantizationSpec> quantization = std::nullopt);
  // Replaces MLX's form.
  void set_packed(std::shared_ptr<const PackedWeights> packed);
  // Without MLX's form having been there.
  void set_packed(
      std::shared_ptr<const PackedWeights> packed,
      std::optional<QuantizationSpec> quantization);

  // Logical elements, quantized or not.
  int64_t count() const;
  // Bytes resident.
  size_t nbytes() const;

 private:
  mx::Shape shape_;
  Kind kind_ = Kind::tensor;
  std::optional<WeightArrays> arrays_;
  std::optional<QuantizationSpec> quantization_;
  std::shared_ptr<const PackedWeights> packed_;
  std::shared_ptr<const DenseProduct> product_;
};

// Called once for each parameter, with its checkpoint name. The one list of
// names that loading, counting, saving, quantizing and sharding share.
using ParameterVisitor =
    std::function<void(const std::string& name, Parameter& parameter)>;
using ConstParameterVisitor =
    std::function<void(const std::string& name, const Parameter& parameter)>;

}  // namespace mlxx
