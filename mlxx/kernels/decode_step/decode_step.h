#pragma once

#include "mlxx/kernels/decode_step/decoder_program.h"

namespace mlxx::kernels {

// A whole decoder as one operation of MLX on the CPU: MLX's cost per operation
// is most of a small model's decode step.
class DecodeStep {
 public:
  DecodeStep(
      std::shared_ptr<const DecoderWeights> weights,
      const Selection& selection);

  const KvShape& kv_shape() const {
    return shape_;
  }
  const DecoderWeights& weights() const {
    return *weights_;
  }

  struct Result {
    // float32: [B, V] of the last token, or [B, L, V].
    mx::array logits;
    // [1]; evaluating it runs the step. The next step of these sequences must
    // be given it.
    mx::array done;
  };
  // tokens [B, L] of any integer dtype; row b continues sequences[b].
  // `previous`: what the newest steps of these sequences gave. Lengths of the
  // sequences grow at once, their contents when the step is evaluated.
  // `changes`: one for each sequence, null for one without adapters; or none.
  // Errors: invalid_request past the last position that the decoder has.
  Result operator()(
      const mx::array& tokens,
      std::span<SequenceKv* const> sequences,
      std::span<const mx::array> previous,
      LogitRows rows,
      std::span<const std::shared_ptr<const DecoderChanges>> changes = {})
      const;

 private:
  std::shared_ptr<const DecoderWeights> weights_;
  KvShape shape_;
  std::shared_ptr<DecoderProgram> program_;
};

}  // namespace mlxx::kernels
