#pragma once

#include <functional>
#include <optional>

#include "mlxx/core/parameters.h"

namespace mlxx::nn {

// What changes the products of linear layers for the rows of one pass, the
// weights staying as they are.
class RowAdapters {
 public:
  virtual ~RowAdapters() = default;

  // The product of a layer, whose weight tells which one it is. `plain` gives
  // its own, with or without its bias. Nothing: that stays.
  virtual std::optional<mx::array> product(
      const Parameter& weight,
      const std::optional<Parameter>& bias,
      const mx::array& x,  // [B, ..., in]
      const std::function<mx::array(bool with_bias)>& plain) const = 0;
};

// Linear layers called on this thread ask `adapters` as long as this lives.
// Scopes nest; the innermost one counts. What is computed as one program asks
// nobody: caches of CacheOptions::per_layer keep a model from that.
class AdapterScope {
 public:
  explicit AdapterScope(const RowAdapters* adapters);
  ~AdapterScope();
  AdapterScope(const AdapterScope&) = delete;
  AdapterScope& operator=(const AdapterScope&) = delete;

 private:
  const RowAdapters* outer_;
};

// Null outside of every scope.
const RowAdapters* active_adapters();

}  // namespace mlxx::nn
