#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mlxx/hub/checkpoint.h"

namespace mlxx::hub {

// How one tensor of a checkpoint is made of those of another: what it will be
// is known without reading, load() reads its own parts only. Recipes are made
// of recipes. For a quantized tensor everything is said in logical terms and
// done to weight, scales and biases alike, without a change of any number.
//
// `place` is what errors name. A shape that does not fit is bad_file and names
// the tensor: the file is not what its config says.
class TensorRecipe {
 public:
  explicit TensorRecipe(TensorInfo info) : info_(std::move(info)) {}
  virtual ~TensorRecipe() = default;
  TensorRecipe(const TensorRecipe&) = delete;
  TensorRecipe& operator=(const TensorRecipe&) = delete;

  // The name is the one that it was made under.
  const TensorInfo& info() const {
    return info_;
  }
  // Materialised, sharing no memory with what it was made of.
  virtual Weight load(const LoadDtype& dtype) const = 0;
  virtual std::unique_ptr<const QuantizedRows> rows() const {
    return nullptr;
  }

 private:
  TensorInfo info_;
};

using RecipePtr = std::shared_ptr<const TensorRecipe>;

// Every `step`-th element of an axis from `begin` on, below `end`.
struct AxisRange {
  int64_t begin;
  int64_t end;
  int64_t step = 1;
};

// The tensor as it is.
RecipePtr take_tensor(const Checkpoint& source, const TensorInfo& info);

// [...] x N -> [N, ...]; equal shapes, dtypes and quantization.
RecipePtr stack_tensors(std::vector<RecipePtr> parts, const std::string& place);

// One after the other along an axis; else equal.
RecipePtr concatenate_tensors(
    std::vector<RecipePtr> parts,
    int axis,
    const std::string& place);

// A part of an axis (negative: from the end). The last axis of a quantized
// tensor can be cut between whole groups only, else unsupported.
RecipePtr slice_tensor(
    RecipePtr tensor,
    int axis,
    AxisRange range,
    const std::string& place);

// Axis i of the result is axis permutation[i]. The last axis of a quantized
// tensor has to stay, else unsupported.
RecipePtr transpose_tensor(
    RecipePtr tensor,
    std::vector<int> permutation,
    const std::string& place);

// The same numbers in another shape; of a quantized tensor the last axis has
// to stay.
RecipePtr reshape_tensor(
    RecipePtr tensor,
    std::vector<int64_t> shape,
    const std::string& place);

// Packed numbers and their scales that a file holds as two byte tensors:
// blocks U8 [..., G, group * bits / 8] and scales U8 [..., G] of the modes
// mxfp4 and mxfp8 -> a quantized tensor of logical shape [..., G * group].
RecipePtr pack_blocks(
    RecipePtr blocks,
    RecipePtr scales,
    const Quantization& quantization,
    const std::string& place);

// What a calculation makes of loaded tensors.
struct Derivation {
  std::vector<int64_t> shape;  // logical
  std::optional<Quantization> quantization;
  std::string stored;  // what TensorInfo says: "BF16", "U32 affine"
  // Lazy or not. A result of another shape is an internal error.
  std::function<Weight(std::span<const Weight> inputs, const LoadDtype& dtype)>
      compute;
  std::string loads_as = {};  // as TensorInfo's
};

RecipePtr derive_tensor(
    std::vector<RecipePtr> inputs,
    Derivation derivation,
    const std::string& place);

}  // namespace mlxx::hub
