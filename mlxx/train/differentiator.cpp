#include <algorithm>
#include <numeric>

#include "mlxx/base/error.h"
#include "mlxx/core/autograd.h"
#include "mlxx/core/checkpoint.h"
#include "mlxx/train/differentiate.h"
#include "mlxx/train/segment_plan.h"
#include "mlxx/train/text_pass.h"

namespace mlxx::train {
namespace {

using Arrays = std::vector<mx::array>;

void check(const DifferentiateOptions& options) {
  if (options.segment_layers < 0) {
    fail(
        ErrorKind::invalid_request,
        "training",
        "segments of {} layers",
        options.segment_layers);
  }
}

// The gradients of one batch, part by part from the top.
class BackwardPass {
 public:
  BackwardPass(
      const TextPass& pass,
      Trainable& trainable,
      const SegmentPlan& plan,
      bool tied)
      : pass_(pass), trainable_(trainable), plan_(plan), tied_(tied) {
    for (size_t i = 0; i < trainable.names().size(); ++i) {
      lowest_ = std::min(lowest_, trainable.layer(i));
    }
  }

  Differentiator::Result apply(const ScoreLoss& loss) {
    gradients_.assign(trainable_.names().size(), std::nullopt);
    run_forward();
    LossSums sums = differentiate_top(loss);
    for (size_t i = plan_.segments.size(); i-- > 0;) {
      differentiate_segment(i);
    }
    if (lowest_ < 0 && !plan_.segments.empty()) {
      differentiate_embedding();
    }
    Differentiator::Result result{std::move(sums), {}};
    for (size_t i = 0; i < gradients_.size(); ++i) {
      result.gradients.push_back(
          gradients_[i] ? *gradients_[i]
                        : mx::zeros_like(trainable_.values()[i]));
    }
    return result;
  }

 private:
  mx::array run_layers(const LayerRange& range, mx::array h) const {
    for (int i = range.first; i < range.last; ++i) {
      h = pass_.layer(i, h);
    }
    return h;
  }

  // What enters each segment and the top, evaluated: no graph hangs on it.
  void run_forward() {
    int first =
        plan_.segments.empty() ? plan_.top.first : plan_.segments[0].first;
    if (first == 0 && plan_.segments.empty()) {
      return;  // the top begins with the tokens
    }
    trainable_.with({}, {}, [&] {
      mx::array h = run_layers({0, first}, pass_.embedded());
      mx::eval(h);
      borders_.push_back(h);
      for (const auto& segment : plan_.segments) {
        h = run_layers(segment, h);
        mx::eval(h);
        borders_.push_back(h);
      }
    });
  }

  // Indices of the parameters of some layers.
  std::vector<size_t> indices_of(const LayerRange& range) const {
    std::vector<size_t> indices;
    for (size_t i = 0; i < trainable_.names().size(); ++i) {
      int layer = trainable_.layer(i);
      if (layer >= range.first && layer < range.last) {
        indices.push_back(i);
      }
    }
    return indices;
  }

  Arrays values_at(const std::vector<size_t>& indices) const {
    Arrays values;
    for (size_t index : indices) {
      values.push_back(trainable_.values()[index]);
    }
    return values;
  }

  void add(const std::vector<size_t>& indices, const mx::array* gradients) {
    for (size_t i = 0; i < indices.size(); ++i) {
      auto& sum = gradients_[indices[i]];
      sum = sum ? mx::add(*sum, gradients[i]) : gradients[i];
    }
  }

  bool top_is_all() const {
    return borders_.empty();
  }

  LossSums differentiate_top(const ScoreLoss& loss) {
    int layers = pass_.layers();
    std::vector<size_t> indices =
        indices_of({top_is_all() ? -1 : plan_.top.first, layers + 1});
    if (tied_ && !top_is_all()) {
      std::vector<size_t> embedding = indices_of({-1, 0});
      indices.insert(indices.end(), embedding.begin(), embedding.end());
    }
    // What enters matters only if something below is trained.
    bool needs_input = !top_is_all() && lowest_ < plan_.top.first;
    Arrays arguments = values_at(indices);
    if (needs_input) {
      arguments.push_back(borders_.back());
    }
    std::optional<LossSums> sums;
    auto scored = [&](const Arrays& x) {
      Arrays values(x.begin(), x.begin() + indices.size());
      std::optional<mx::array> result;
      trainable_.with(indices, values, [&] {
        mx::array scores = pass_.layers() == 0
            ? pass_.scores()
            : pass_.scores(top_layers(
                  top_is_all()      ? pass_.embedded()
                      : needs_input ? x.back()
                                    : borders_.back()));
        sums = loss(scores);
        result = sums->loss;
      });
      return Arrays{*result};
    };
    if (arguments.empty()) {
      fail(ErrorKind::invalid_request, "training", "nothing to train");
    }
    std::vector<int> all(arguments.size());
    std::iota(all.begin(), all.end(), 0);
    auto result = ValueAndGrad(scored, all).apply(arguments);
    add(indices, result.gradients.data());
    sums->loss = result.loss;
    if (needs_input) {
      from_above_ = result.gradients.back();
      Arrays now = result.gradients;
      now.push_back(sums->loss);
      now.push_back(sums->count);
      for (const auto& metric : sums->metrics) {
        now.push_back(metric.second);
      }
      mx::eval(now);
      borders_.pop_back();
    }
    return *sums;
  }

  mx::array top_layers(mx::array h) const {
    for (int i = plan_.top.first; i < plan_.top.last; ++i) {
      if (!plan_.checkpoint_top) {
        h = pass_.layer(i, h);
        continue;
      }
      auto layer = checkpointed(
          [&, i](const Arrays& x) { return Arrays{pass_.layer(i, x[0])}; });
      h = layer({h})[0];
    }
    return h;
  }

  void differentiate_segment(size_t index) {
    const LayerRange& range = plan_.segments[index];
    std::vector<size_t> indices = indices_of(range);
    bool needs_input = lowest_ < range.first;
    mx::array input = borders_.back();
    borders_.pop_back();
    Arrays primals = values_at(indices);
    if (needs_input) {
      primals.push_back(input);
    }
    auto segment = [&](const Arrays& x) {
      Arrays values(x.begin(), x.begin() + indices.size());
      std::optional<mx::array> h;
      trainable_.with(indices, values, [&] {
        h = run_layers(range, needs_input ? x.back() : input);
      });
      return Arrays{*h};
    };
    auto result = Vjp(segment, 1).apply(primals, {*from_above_});
    mx::eval(result.cotangents);
    add(indices, result.cotangents.data());
    if (needs_input) {
      from_above_ = result.cotangents.back();
    }
  }

  void differentiate_embedding() {
    std::vector<size_t> indices = indices_of({-1, 0});
    auto embedded = [&](const Arrays& x) {
      std::optional<mx::array> h;
      trainable_.with(indices, x, [&] { h = pass_.embedded(); });
      return Arrays{*h};
    };
    auto result = Vjp(embedded, 1).apply(values_at(indices), {*from_above_});
    mx::eval(result.cotangents);
    add(indices, result.cotangents.data());
  }

  const TextPass& pass_;
  Trainable& trainable_;
  const SegmentPlan& plan_;
  bool tied_;
  int lowest_ = INT32_MAX;
  Arrays borders_;
  std::optional<mx::array> from_above_;
  std::vector<std::optional<mx::array>> gradients_;
};

class ModelDifferentiator : public Differentiator {
 public:
  ModelDifferentiator(
      const models::Model& model,
      Trainable& trainable,
      const DifferentiateOptions& options)
      : model_(model), trainable_(trainable) {
    check(options);
    const auto* face = model.training_face();
    if (!face) {
      return;
    }
    auto head = face->head_parts();
    tied_ = head.tied;
    int layers = face->layer_count();
    int lowest = layers;
    for (size_t i = 0; i < trainable.names().size(); ++i) {
      int layer = trainable.layer(i);
      lowest = std::min(lowest, layer);
      trains_head_ = trains_head_ || layer >= layers || (tied_ && layer < 0);
    }
    trains_head_ =
        trains_head_ && !head.weight->packed() && !head.weight->quantization();
    int first = std::clamp(lowest, 0, layers);
    switch (options.recompute) {
      case Recompute::automatic:
      case Recompute::none:
        plan_ = cut_in_segments(0, layers, 1, layers);
        break;
      case Recompute::checkpoint:
        plan_ = cut_in_segments(0, layers, 1, layers);
        plan_.checkpoint_top = true;
        break;
      case Recompute::segments: {
        int step = std::max(1, options.segment_layers);
        plan_ = cut_in_segments(first, layers, step, step);
        break;
      }
    }
  }

  Result apply(const data::Batch& batch, const ScoreLoss& loss) const override {
    TextPass pass(model_, batch, trains_head_);
    return BackwardPass(pass, trainable_, plan_, tied_).apply(loss);
  }

  mx::array scores(const data::Batch& batch, bool reference) const override {
    TextPass pass(model_, batch);
    std::optional<mx::array> result;
    auto body = [&] { result = pass.scores(/* differentiable= */ false); };
    if (reference) {
      trainable_.without(body);
    } else {
      trainable_.with({}, {}, body);
    }
    return *result;
  }

  std::string description() const override {
    return plan_.description();
  }

 private:
  const models::Model& model_;
  Trainable& trainable_;
  SegmentPlan plan_;
  bool tied_ = false;
  bool trains_head_ = false;
};

}  // namespace

std::unique_ptr<Differentiator> make_differentiator(
    const models::Model& model,
    Trainable& trainable,
    const DifferentiateOptions& options) {
  return std::make_unique<ModelDifferentiator>(model, trainable, options);
}

}  // namespace mlxx::train
