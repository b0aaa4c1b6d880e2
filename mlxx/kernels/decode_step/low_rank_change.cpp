#include "mlxx/kernels/decode_step/low_rank_change.h"

#include <algorithm>

namespace mlxx::kernels {
namespace {

std::vector<float> numbers_of(const mx::array& array) {
  mx::array plain = mx::contiguous(mx::astype(array, mx::float32));
  mx::eval(plain);
  return {plain.data<float>(), plain.data<float>() + plain.size()};
}

int64_t panels_of(int64_t out) {
  return (out + kLanes - 1) / kLanes;
}

}  // namespace

LowRankChange make_low_rank_change(
    const mx::array& a,
    const mx::array& b,
    float scale,
    const std::optional<mx::array>& gain) {
  LowRankChange change;
  change.rank = b.shape(0);
  change.a = numbers_of(mx::transpose(a));
  const std::vector<float> rows = numbers_of(b);
  const int64_t out = b.shape(1);
  const int64_t rank = change.rank;
  change.b.resize(static_cast<size_t>(panels_of(out) * rank * kLanes));
  for (int64_t r = 0; r < rank; ++r) {
    for (int64_t i = 0; i < out; ++i) {
      change.b[(i / kLanes * rank + r) * kLanes + i % kLanes] =
          scale * rows[r * out + i];
    }
  }
  if (gain) {
    change.gain = numbers_of(*gain);
    change.gain.resize(static_cast<size_t>(panels_of(out) * kLanes));
  }
  return change;
}

int rank_of(const DecoderChanges::OfMatrix& matrix) {
  int rank = 0;
  for (const auto& change : matrix.changes) {
    rank += change->rank;
  }
  return rank;
}

std::shared_ptr<const DecoderChanges> changes_of_decoder(
    const DecoderWeights& weights,
    const std::function<DecoderChanges::Shared(const PanelMatrix&)>& find) {
  auto all = std::make_shared<DecoderChanges>();
  auto look = [&](const PanelLinear& linear, DecoderChanges::OfMatrix& into) {
    if (linear.matrix) {
      into.changes = find(*linear.matrix);
      all->matrices += into.changes.empty() ? 0 : 1;
    }
  };
  for (const auto& layer : weights.layers) {
    auto& changes = all->layers.emplace_back();
    const PanelLinear* linears[] = {
        &layer.q,
        &layer.k,
        &layer.v,
        &layer.o,
        &layer.gate,
        &layer.up,
        &layer.down};
    for (int i = 0; i < kLayerMatrices; ++i) {
      look(*linears[i], changes[i]);
    }
    auto follow = [&](LayerMatrix one, LayerMatrix before) {
      const auto& earlier = changes[static_cast<int>(before)];
      changes[static_cast<int>(one)].first = earlier.first + rank_of(earlier);
    };
    follow(LayerMatrix::k, LayerMatrix::q);
    follow(LayerMatrix::v, LayerMatrix::k);
    follow(LayerMatrix::up, LayerMatrix::gate);
  }
  look(weights.head, all->head);
  return all;
}

}  // namespace mlxx::kernels
