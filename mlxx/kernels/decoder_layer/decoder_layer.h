#pragma once

#include <memory>
#include <optional>
#include <span>

#include "mlxx/kernels/decode_step/decoder_program.h"

namespace mlxx::kernels {

// Layers of a decoder as one operation of MLX each on the CPU, for decoders
// whose other layers are something else. All of them share what they need to
// compute; each has keys and values of its own. float32, not differentiable.
class DecoderLayers {
 public:
  // weights.embedding null; why_not_run(weights) empty.
  DecoderLayers(
      std::shared_ptr<const DecoderWeights> weights,
      const Selection& selection);

  // Of one layer's sequences.
  const KvShape& kv_shape() const {
    return shape_;
  }

  struct Result {
    mx::array hidden;  // [B, L, E]
    // [1]; evaluating it runs the layer. The layer's next call for these
    // sequences must be given it.
    mx::array done;
  };
  // hidden [B, L, E] of a floating dtype, of which float32 is computed; row b
  // continues sequences[b]. `previous`: what the layer's newest calls for these
  // sequences gave. Lengths of the sequences grow at once, their
  // contents when the layer is evaluated. Errors: internal for another shape.
  Result operator()(
      int layer,
      const mx::array& hidden,
      std::span<SequenceKv* const> sequences,
      std::span<const mx::array> previous) const;

 private:
  std::shared_ptr<const DecoderWeights> weights_;
  KvShape shape_;
  std::shared_ptr<DecoderProgram> program_;
};

}  // namespace mlxx::kernels
