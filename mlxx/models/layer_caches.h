#pragma once

#include "mlxx/cache/cache.h"
#include "mlxx/models/model.h"
#include "mlxx/nn/decoder_layer.h"

namespace mlxx::models {

// An empty cache of the kind that a layer asks for.
std::unique_ptr<cache::LayerCache> make_layer_cache(
    const nn::StateSpec& state,
    const CacheOptions& options);

}  // namespace mlxx::models
