// What a decoder's rows are before its layers and after them, and the norms on
// the way.
#include <algorithm>
#include <cmath>

#include "mlxx/kernels/decode_step/decoder_program.h"

namespace mlxx::kernels {

void DecoderProgram::embed(int64_t row, float* to) const {
  const Row& at = rows_[row];
  int64_t size = weights_->hidden_size;
  weights_->embedding->copy_row(inputs_[at.input].tokens[at.token], to);
  if (weights_->embedding_multiplier != 1) {
    for (int64_t i = 0; i < size; ++i) {
      to[i] *= weights_->embedding_multiplier;
    }
  }
  if (weights_->positions) {
    std::vector<float> position(size);
    weights_->positions->copy_row(at.position, position.data());
    for (int64_t i = 0; i < size; ++i) {
      to[i] += position[i];
    }
  }
}

void DecoderProgram::find_angles(int64_t row) {
  for (size_t t = 0; t < weights_->rotations.size(); ++t) {
    if (!whole_ && layer(range_.begin).rotation != static_cast<int>(t)) {
      continue;
    }
    const RotationTable& table = weights_->rotations[t];
    int64_t at = row * angles() + angle_starts_[t];
    for (double per_position : table.per_position) {
      double angle = rows_[row].position * per_position;
      cosines_[at] = static_cast<float>(table.scale * std::cos(angle));
      sines_[at] = static_cast<float>(table.scale * std::sin(angle));
      ++at;
    }
  }
}

void DecoderProgram::begin_row(int64_t row) {
  int64_t size = weights_->hidden_size;
  float* to = x_.data() + row * size;
  if (whole_) {
    embed(row, to);
  } else {
    const Row& at = rows_[row];
    std::copy_n(inputs_[at.input].hidden + at.token * size, size, to);
  }
  find_angles(row);
}

void DecoderProgram::give_row(int64_t row) {
  const Row& at = rows_[row];
  int64_t size = weights_->hidden_size;
  int64_t to = int64_t{at.input} * inputs_[at.input].count + at.token;
  std::copy_n(x_.data() + row * size, size, out_ + to * size);
}

const float* DecoderProgram::normed(
    const NormWeights& norm,
    const float* weight,
    const float* x,
    int64_t n,
    float* y) const {
  switch (norm.kind) {
    case NormWeights::Kind::none:
      return x;
    case NormWeights::Kind::rms:
      row_kernels_.rms_norm(x, weight, norm.eps, n, y);
      break;
    case NormWeights::Kind::layer:
      layer_kernels_.layer_norm(
          x,
          weight,
          norm.bias.empty() ? nullptr
                            : norm.bias.data() + (weight - norm.weight.data()),
          norm.eps,
          n,
          y);
      break;
  }
  return y;
}

void DecoderProgram::norm_head(const HeadNorm& head, int64_t index, float* x)
    const {
  if (!head.norm || head.whole) {
    return;
  }
  int64_t size = weights_->head_size;
  bool shared = static_cast<int64_t>(head.norm.weight.size()) == size;
  normed(
      head.norm,
      head.norm.weight.data() + (shared ? 0 : index * size),
      x,
      size,
      x);
}

void DecoderProgram::join(Part part, int index, int64_t row, Scratch& scratch) {
  const auto& w = layer(index);
  int64_t size = weights_->hidden_size;
  const float* branch = normed(
      part == Part::output ? w.after_attention : w.after_mlp,
      branch_.data() + row * size,
      scratch.row.data());
  float* x = x_.data() + row * size;
  for (int64_t i = 0; i < size; ++i) {
    x[i] += branch[i] * w.residual_multiplier;
  }
}

}  // namespace mlxx::kernels
