#pragma once

#include <optional>
#include <string>

#include "mlxx/hub/rewritten_checkpoint.h"

namespace mlxx::hub {

// Integers of a quantized matrix [out, in] with a scale for each group of a
// row, as other programs pack them, on the way to MLX's affine form:
// w = (q - zero) * scale with unsigned q.
struct PackedIntegers {
  std::string module;  // for errors
  int64_t out;
  int64_t in;
  int64_t group;  // inputs that share a scale
  int bits;

  // MLX's group: the largest of its sizes that divides the file's. unsupported,
  // naming the module, where none does or MLX has not these bits.
  int mlx_group(const std::string& place) const;
  Derivation derivation(
      const std::string& stored,
      const std::string& place,
      std::function<Weight(std::span<const Weight>, const LoadDtype&)> compute)
      const;
};

// words uint32 [out, in * bits / 32] in MLX's order, scales [out, in / group]
// of a floating dtype, zeros float32 of that shape or scalar. Scales and biases
// come out as float32 if `dtype` says so, else in the dtype of the scales; the
// scales are repeated where MLX's groups are smaller.
Weight make_affine(
    const PackedIntegers& matrix,
    int mlx_group,
    const mx::array& words,
    const mx::array& scales,
    const mx::array& zeros,
    const LoadDtype& dtype);

// `count` unsigned numbers from a stream of `bits` each, the first in the
// lowest bits of the first word; rows of `words` of uint32 [rows, words] ->
// float32 [rows, count].
mx::array unpack_rows(const mx::array& words, int64_t count, int bits);

// Whether group indices [in] say what their absence says, that input i belongs
// to group i / group. All -1 is as good as absent.
bool is_in_order(const mx::array& indices, int64_t group);

}  // namespace mlxx::hub
