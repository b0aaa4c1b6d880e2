#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "mlxx/kernels/decode_step/decoder_weights.h"

namespace mlxx::kernels {

// What an adapter does to the products of one matrix [out, in] for the rows
// that use it: gain * (W x + b (a x)), before the bias; without a gain (LoRA)
// what is in brackets. In the form in which the program computes it.
struct LowRankChange {
  int rank = 0;
  std::vector<float> a;     // [rank, in]
  std::vector<float> b;     // [panels of out, rank, 32]: zeros past out
  std::vector<float> gain;  // [panels of out, 32] or empty

  size_t nbytes() const {
    return (a.size() + b.size() + gain.size()) * sizeof(float);
  }
};

// a [in, r], b [r, out] and gain [out] of any floating dtype; `scale`
// multiplies b. Evaluates them.
LowRankChange make_low_rank_change(
    const mx::array& a,
    const mx::array& b,
    float scale,
    const std::optional<mx::array>& gain);

// The products of a layer, by the rows that they read: the first three those of
// attention, gate and up those of the network.
enum class LayerMatrix { q, k, v, o, gate, up, down };
inline constexpr int kLayerMatrices = 7;

// The changes of all matrices of a decoder for one sequence. Several of one
// matrix add up.
struct DecoderChanges {
  using Shared = std::vector<std::shared_ptr<const LowRankChange>>;
  struct OfMatrix {
    Shared changes;
    int first = 0;  // where its a x begin among those that read the same rows
  };
  std::vector<std::array<OfMatrix, kLayerMatrices>> layers;
  OfMatrix head;
  int matrices = 0;  // that are changed
};

// `find` gives the changes of a matrix.
std::shared_ptr<const DecoderChanges> changes_of_decoder(
    const DecoderWeights& weights,
    const std::function<DecoderChanges::Shared(const PanelMatrix&)>& find);

// Numbers that a x of all changes of one matrix takes.
int rank_of(const DecoderChanges::OfMatrix& matrix);

}  // namespace mlxx::kernels
