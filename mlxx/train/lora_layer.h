#pragma once

#include <optional>

#include "mlxx/train/lora_options.h"

namespace mlxx::train {

// The numbers of one module: those trained, or what a trace puts in their
// place. Shapes as mlx-lm has them, with rank r:
//   linear     a [in, r]           b [r, out]
//   experts    a [experts, r, in]  b [experts, out, r]
//   embedding  a [count, r]        b [r, size]
// magnitude: [out] or [count], of DoRA.
struct LoraValues {
  const mx::array& a;
  const mx::array& b;
  const mx::array* magnitude;
};

// Of a module with several weights, the outputs of one.
struct OutputRange {
  int begin;
  int end;
};

// What dropout leaves of the arrays of a step: a function of these numbers
// alone, and of a use's number where a module has several.
struct Dropout {
  double probability = 0;  // 0: none
  uint64_t seed = 0;
  int64_t step = 0;
  uint64_t module = 0;

  // x in float32, or x itself without dropout.
  mx::array operator()(const mx::array& x, uint64_t use = 0) const;
};

// Squares of the lengths of a weight's rows, float32, evaluated: [out], or
// [count] of an embedding.
mx::array squared_lengths(const Parameter& weight);

// The changed products, in mlx-lm's order of operations
// (mlx_lm/tuner/{lora,dora}.py), with the weight in MLX's form; in a packed
// form DoRA's norms come from products with the small matrices, and
// `squared` = squared_lengths(). `plain`: as nn::RowAdapters has it.

mx::array lora_product(
    const LoraModule& module,
    const LoraValues& values,
    const OutputRange& range,
    const Parameter& weight,
    const std::optional<Parameter>& bias,
    const std::optional<mx::array>& squared,
    const mx::array& x,
    const Dropout& dropout,
    const std::function<mx::array(bool with_bias)>& plain);

mx::array lora_expert_product(
    const LoraModule& module,
    const LoraValues& values,
    const mx::array& x,
    const mx::array& indices,
    bool sorted,
    const Dropout& dropout,
    const std::function<mx::array()>& plain);

mx::array lora_rows(
    const LoraModule& module,
    const LoraValues& values,
    const mx::array& ids,
    const Dropout& dropout,
    const std::function<mx::array()>& plain);

mx::array lora_head(
    const LoraModule& module,
    const LoraValues& values,
    const Parameter& table,
    const std::optional<mx::array>& squared,
    const mx::array& x,
    const Dropout& dropout,
    const std::function<mx::array()>& plain);

}  // namespace mlxx::train
