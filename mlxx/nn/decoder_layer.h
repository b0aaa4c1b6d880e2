#pragma once

#include "mlxx/cache/cache.h"
#include "mlxx/core/parameters.h"
#include "mlxx/kernels/select.h"

namespace mlxx::nn {

// What a layer remembers between calls; the model makes the cache for it.
struct StateSpec {
  enum class Kind {
    attention,  // keys and values: cache::KVCache
    chunked,    // the same, of the current chunk of `window` tokens only
    recurrent,  // `slots` arrays: cache::RecurrentCache
    composite,  // several of these: cache::CompositeCache
    none,       // nothing, or another layer's
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
  // Which kernels compute; without a call the plain operations.
  virtual void use(const kernels::Selection& selection) = 0;
};

}  // namespace mlxx::nn
