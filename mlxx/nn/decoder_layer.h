#pragma once

#include <optional>

#include "mlxx/cache/cache.h"
#include "mlxx/core/parameters.h"
#include "mlxx/kernels/select.h"
#include "mlxx/nn/layer_spec.h"

namespace mlxx::nn {

// What a layer remembers between calls; the model makes the cache for it.
struct StateSpec {
  enum class Kind {
    attention,  // keys and values: cache::KVCache
    chunked,    // the same, of the current chunk of `window` tokens only
    recurrent,  // `slots` arrays: cache::RecurrentCache
    composite,  // several of these: cache::CompositeCache
  };
  Kind kind = Kind::attention;
  int window = 0;  // attention: newest tokens kept, 0: all
  int slots = 0;
  std::vector<StateSpec> parts = {};  // of a composite one
};

// One layer of a decoder: h [B, L, E] -> [B, L, E].
class DecoderLayer {
 public:
  virtual ~DecoderLayer() = default;

  // `mask`: of the model's first layer with the same kind of state and window
  // (layers that don't attend ignore it).
  virtual mx::array operator()(
      const mx::array& h,
      const kernels::AttentionMask& mask,
      cache::LayerCache& cache) const = 0;

  virtual StateSpec state() const = 0;

  virtual void visit(
      const std::string& prefix,
      const ParameterVisitor& visitor) = 0;
  // The layer's first half as data, for kernels that compute it: h + m *
  // after_attention(attention(before_attention(h))), or nothing if it is
  // something else. Names are those within the layer.
  virtual std::optional<LayerSpec> attention_half() const {
    return std::nullopt;
  }
  // The second half, if attention_half() is there.
  virtual mx::array add_network(const mx::array& h) const {
    return h;
  }

  // Whether nn/training_rows.h is all that says where a text begins.
  virtual bool takes_packed_rows() const {
    return false;
  }

  // Which kernels compute; without a call the plain operations.
  virtual void use(const kernels::Selection& selection) = 0;
};

}  // namespace mlxx::nn
