#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "mlxx/base/json.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/hub/rewritten_checkpoint.h"

namespace mlxx::hub {

// Quantized weights that MLX's converter did not write, as config.json says
// it: "quantization_config" with a "quant_method", also inside "text_config",
// or a file hf_quant_config.json.
struct ForeignQuantization {
  std::string method;  // "fp8", "awq", "gptq", "compressed-tensors"...
  std::string format;  // of compressed-tensors: "pack-quantized"
  std::shared_ptr<const Json> settings;  // an object

  // Absent if there is none, or if it is MLX's own. unsupported for a method
  // that is not known here, naming it and what is.
  static std::optional<ForeignQuantization> find(
      const Json& config,
      const std::filesystem::path& folder);

  // Whether tensors have forms that convert_foreign() gives to MLX; not for
  // "mxfp4", whose parts a model's own rewriting names.
  bool is_converted() const {
    return method != "mxfp4";
  }
};

// The tensors of `raw`, which lists what the files hold one by one, in forms
// that MLX has:
//   fp8, 8 bits of compressed-tensors' float formats: written out in bfloat16,
//     as mlx-lm does it
//   awq, gptq, integers of compressed-tensors: affine, exactly where scales are
//     loaded as float32; else the product of zero point and scale is rounded to
//     the dtype of the scales, as mlx-lm does it
//   nvfp4, mxfp4: MLX's modes of that name
// Both parts of a pair are required, shapes and dtypes are checked when this is
// called, values (permuted groups) when a tensor is loaded. unsupported, with
// the tensor's name, for what no form of MLX has; bad_file for contradictions.
std::shared_ptr<const Checkpoint> convert_foreign(
    std::shared_ptr<const Checkpoint> raw,
    const ForeignQuantization& quantization);

// One function for each way of packing, for convert_foreign().
void convert_fp8(TensorRewrite& tensors, const JsonView& settings);
void convert_awq(TensorRewrite& tensors, const JsonView& settings);
void convert_gptq(TensorRewrite& tensors, const JsonView& settings);
void convert_compressed_tensors(
    TensorRewrite& tensors,
    const JsonView& settings);
void convert_modelopt(TensorRewrite& tensors, const JsonView& settings);

}  // namespace mlxx::hub
