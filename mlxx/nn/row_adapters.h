#pragma once

#include <functional>
#include <optional>

#include "mlxx/core/parameters.h"
#include "mlxx/kernels/decode_step/low_rank_change.h"

namespace mlxx::nn {

// What changes the products of layers for the rows of one pass, the weights
// staying as they are. A layer's weight tells which one it is. Each function
// returns nothing where a layer's own result stays.
class RowAdapters {
 public:
  virtual ~RowAdapters() = default;

  // The product of a linear layer. `plain` gives its own, with or without its
  // bias.
  virtual std::optional<mx::array> product(
      const Parameter& weight,
      const std::optional<Parameter>& bias,
      const mx::array& x,  // [B, ..., in]
      const std::function<mx::array(bool with_bias)>& plain) const = 0;

  // Rows of an embedding's table [count, size]: ids [B, ...] -> [B, ..., size].
  virtual std::optional<mx::array> rows(
      const Parameter& /* table */,
      const mx::array& /* ids */,
      const std::function<mx::array()>& /* plain */) const {
    return std::nullopt;
  }
  // An embedding as the output head: x [B, ..., size] -> [B, ..., count].
  virtual std::optional<mx::array> head(
      const Parameter& /* table */,
      const mx::array& /* x */,
      const std::function<mx::array()>& /* plain */) const {
    return std::nullopt;
  }

  // The products of experts [experts, out, in]; arguments as those of
  // kernels::expert_matmul, `plain` with the bias. Where rows_apart(), x and
  // indices begin with [B, ...] and are not sorted.
  virtual std::optional<mx::array> expert_product(
      const Parameter& /* weight */,
      const mx::array& /* x */,
      const mx::array& /* indices */,
      bool /* sorted */,
      const std::function<mx::array()>& /* plain */) const {
    return std::nullopt;
  }
  // Whether a layer is to ask expert_product() for these experts: what computes
  // several layers of experts as one operation asks nobody.
  virtual bool changes(const Parameter& /* experts */) const {
    return false;
  }
  // Whether rows differ, so that the order of a pass's rows matters.
  virtual bool rows_apart() const {
    return false;
  }

  // For a decoder that runs as one program: its changes for each of the pass's
  // rows, null for a row without any; or none at all. Errors: internal if
  // these adapters can't be part of such a program.
  virtual std::vector<std::shared_ptr<const kernels::DecoderChanges>>
  changes_of_decoder(const kernels::DecoderWeights& weights, int rows) const;
};

// Layers called on this thread ask `adapters` as long as this lives, nobody if
// it is null. Scopes nest; the innermost one counts. What is computed as one
// program asks for changes_of_decoder() only: caches of CacheOptions::per_layer
// keep a model from that.
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
