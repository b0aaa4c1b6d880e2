#pragma once

#include <climits>
#include <optional>
#include <vector>

#include "mlxx/train/differentiate.h"
#include "mlxx/train/segment_plan.h"
#include "mlxx/train/text_pass.h"

namespace mlxx::train {

// What is done with the results of each part of a backward pass, of which no
// graph is left then: they are evaluated, or for a plan of memory arrays of the
// same shapes take their place.
class PartEnd {
 public:
  virtual ~PartEnd() = default;
  // `held`: bytes of what earlier parts left.
  virtual void operator()(std::vector<mx::array>& results, size_t held) = 0;
};

// The gradients of one batch, part by part from the top.
class BackwardPass {
 public:
  BackwardPass(
      const TextPass& pass,
      Trainable& trainable,
      const SegmentPlan& plan,
      bool tied,
      PartEnd& end);

  Differentiator::Result apply(const ScoreLoss& loss);

  // Bytes of what parts left: borders and gradients.
  size_t held() const;

 private:
  mx::array ended(const mx::array& result);

  mx::array run_layers(const LayerRange& range, mx::array h) const;

  // What enters each segment and the top, evaluated: no graph hangs on it.
  void run_forward();

  // Indices of the parameters of some layers.
  std::vector<size_t> indices_of(const LayerRange& range) const;

  std::vector<mx::array> values_at(const std::vector<size_t>& indices) const;

  void add(const std::vector<size_t>& indices, const mx::array* gradients);

  bool top_is_all() const;

  LossSums differentiate_top(const ScoreLoss& loss);

  mx::array top_layers(mx::array h) const;

  void differentiate_segment(size_t index);

  void differentiate_embedding();

  const TextPass& pass_;
  Trainable& trainable_;
  const SegmentPlan& plan_;
  bool tied_;
  PartEnd& end_;
  int lowest_ = INT_MAX;
  std::vector<mx::array> borders_;
  std::optional<mx::array> from_above_;
  std::vector<std::optional<mx::array>> gradients_;
};

}  // namespace mlxx::train
