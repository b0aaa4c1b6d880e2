// What adapters add to a decoder's products: of each row with its own ones.
#include <algorithm>

#include "mlxx/kernels/decode_step/decoder_program.h"

namespace mlxx::kernels {

void DecoderProgram::find_ranks() {
  reduced_size_ = 0;
  for (const auto& input : inputs_) {
    if (!input.changes) {
      continue;
    }
    auto look = [&](const DecoderChanges::OfMatrix& matrix) {
      reduced_size_ = std::max(reduced_size_, matrix.first + rank_of(matrix));
    };
    for (int i = range_.begin; i < range_.end; ++i) {
      std::ranges::for_each(input.changes->layers[i], look);
    }
    look(input.changes->head);
  }
  auto size = static_cast<size_t>(reduced_size_) * rows_.size();
  if (reduced_.size() < size) {
    reduced_.resize(size);
  }
  for (auto& scratch : scratch_) {
    scratch.reduced.resize(
        static_cast<size_t>(reduced_size_) * kRowsPreparedByAll);
  }
}

const DecoderChanges* DecoderProgram::changes_of(Part part, int64_t row) const {
  int64_t at = part == Part::head ? out_rows_[row].first : row;
  return inputs_[rows_[at].input].changes.get();
}

std::span<const DecoderChanges::OfMatrix> DecoderProgram::changed_by(
    const DecoderChanges& changes,
    Part part,
    int index) {
  auto from = [&](LayerMatrix first, size_t count) {
    const auto& all = changes.layers[index];
    return std::span(all).subspan(static_cast<size_t>(first), count);
  };
  switch (part) {
    case Part::attention:
      return from(LayerMatrix::q, 3);
    case Part::output:
      return from(LayerMatrix::o, 1);
    case Part::mlp:
      return from(LayerMatrix::gate, 2);
    case Part::down:
      return from(LayerMatrix::down, 1);
    case Part::head:
      break;
  }
  return {&changes.head, 1};
}

void DecoderProgram::reduce(
    Part part,
    int index,
    int64_t row,
    const float* x,
    std::vector<float>& reduced) {
  const DecoderChanges* changes = changes_of(part, row);
  if (!changes) {
    return;
  }
  float* to = reduced.data() + row * reduced_size_;
  for (const auto& matrix : changed_by(*changes, part, index)) {
    for (const auto& change : matrix.changes) {
      layer_kernels_.dot_rows(
          change->a.data(),
          change->rank,
          x,
          input_size(part, index),
          to);
      to += change->rank;
    }
  }
}

void DecoderProgram::change_tile(
    const Read& read,
    int which,
    int64_t panel,
    int64_t rows,
    float* tile) const {
  for (int64_t row = 0; row < rows; ++row) {
    const DecoderChanges* changes = changes_of(read.part, row);
    if (!changes) {
      continue;
    }
    const auto& matrix = changed_by(*changes, read.part, read.layer)[which];
    const float* z = read.reduced + row * reduced_size_ + matrix.first;
    float* y = tile + row * kLanes;
    for (const auto& change : matrix.changes) {
      layer_kernels_.add_rows(
          z,
          change->rank,
          change->b.data() + panel * change->rank * kLanes,
          kLanes,
          y);
      z += change->rank;
      if (!change->gain.empty()) {
        const float* gain = change->gain.data() + panel * kLanes;
        for (int i = 0; i < kLanes; ++i) {
          y[i] *= gain[i];
        }
      }
    }
  }
}

}  // namespace mlxx::kernels
