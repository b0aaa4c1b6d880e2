#include "mlxx/cache/states.h"

#include <utility>

#include "mlxx/core/mlx.h"

namespace mlxx::cache {

std::vector<mx::array> states(const CacheList& caches) {
  std::vector<mx::array> all;
  for (const auto& cache : caches) {
    for (mx::array& state : cache->state()) {
      all.push_back(std::move(state));
    }
  }
  return all;
}

void evaluate(const CacheList& caches) {
  mx::eval(states(caches));
}

}  // namespace mlxx::cache
