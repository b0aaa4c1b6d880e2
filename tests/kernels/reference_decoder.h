#pragma once

#include <map>
#include <vector>

#include "mlxx/kernels/decode_step/decoder_weights.h"

namespace mlxx::kernels {

// What DecoderWeights mean, written out token by token in double precision.
class ReferenceDecoder {
 public:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>;

  explicit ReferenceDecoder(const DecoderWeights& weights)
      : weights_(weights) {}

  // Of every token: [tokens][V].
  Rows logits(const std::vector<int>& tokens);
  // What a layer makes of x [tokens][E].
  Rows layer(int index, const Rows& x);

 private:
  using Matrix = std::vector<float>;

  const Matrix& numbers(const PanelMatrix& matrix);
  Row multiply(const PanelLinear& linear, const Row& x);
  Row head_row(const HeadNorm& norm, const Row& row) const;
  void rotate(int table, int position, double* head) const;
  Rows attend(
      const DecoderLayerWeights& w,
      const Rows& queries,
      const Rows& keys,
      const Rows& values) const;
  Row feed_forward(const DecoderLayerWeights& w, const Row& x);

  const DecoderWeights& weights_;
  std::map<const PanelMatrix*, Matrix> matrices_;
};

}  // namespace mlxx::kernels
