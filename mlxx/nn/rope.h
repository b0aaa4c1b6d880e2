#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/core/mlx.h"
#include "mlxx/kernels/rope/rope.h"
#include "mlxx/kernels/select.h"

namespace mlxx::nn {

// What rotary positions do to pairs of numbers, whatever the length.
struct Rotations {
  std::vector<double> per_position;  // angle of each pair, [dims / 2]
  double scale;                      // multiplies what is rotated
  bool pairs;                        // (2i, 2i + 1), not (i, dims / 2 + i)
};

// Rotary position embedding of the first `dims` of the last axis.
class Rope {
 public:
  virtual ~Rope() = default;
  // x [B, H, L, D]; `first` is the position of the first of the L tokens.
  // unsupported if that is an array and the angles depend on the length.
  virtual mx::array operator()(
      const mx::array& x,
      const kernels::Position& first,
      const kernels::Selection& selection = {}) const = 0;
  // For kernels of whole layers; nothing if the angles depend on the length.
  virtual std::optional<Rotations> rotations() const {
    return std::nullopt;
  }
  // What `mlxx show` prints: "plain", "linear", "llama3", ...
  virtual const char* name() const = 0;
};

struct RopeOptions {
  int dims = 0;
  double base = 10000;
  bool traditional = false;         // rotate pairs (2i, 2i+1), not halves
  int max_position_embeddings = 0;  // 0 if unknown
};

// From a config's rope_scaling (or rope_parameters) object, as mlx-lm's
// initialize_rope: default, linear, dynamic, llama3, yarn (and deepseek_yarn,
// telechat3-yarn), longrope, proportional. Another type is unsupported; a
// value that makes no sense is a bad_file naming its key.
std::shared_ptr<const Rope> make_rope(
    const RopeOptions& options,
    const std::optional<JsonView>& scaling);

}  // namespace mlxx::nn
