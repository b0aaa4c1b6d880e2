#include "mlxx/train/backward_pass.h"

#include <algorithm>
#include <numeric>

#include "mlxx/base/error.h"
#include "mlxx/core/autograd.h"
#include "mlxx/core/checkpoint.h"

namespace mlxx::train {
namespace {

using Arrays = std::vector<mx::array>;

}  // namespace

BackwardPass::BackwardPass(
    const TextPass& pass,
    Trainable& trainable,
    const SegmentPlan& plan,
    bool tied,
    PartEnd& end)
    : pass_(pass), trainable_(trainable), plan_(plan), tied_(tied), end_(end) {
  for (size_t i = 0; i < trainable.names().size(); ++i) {
    lowest_ = std::min(lowest_, trainable.layer(i));
  }
}

Differentiator::Result BackwardPass::apply(const ScoreLoss& loss) {
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

size_t BackwardPass::held() const {
  size_t bytes = from_above_ ? from_above_->nbytes() : 0;
  for (const auto& border : borders_) {
    bytes += border.nbytes();
  }
  for (const auto& gradient : gradients_) {
    bytes += gradient ? gradient->nbytes() : 0;
  }
  return bytes;
}

mx::array BackwardPass::ended(const mx::array& result) {
  Arrays results{result};
  end_(results, held());
  return results[0];
}

mx::array BackwardPass::run_layers(const LayerRange& range, mx::array h) const {
  for (int i = range.first; i < range.last; ++i) {
    h = pass_.layer(i, h, plan_.keeps_products);
  }
  return h;
}

void BackwardPass::run_forward() {
  int first =
      plan_.segments.empty() ? plan_.top.first : plan_.segments[0].first;
  if (first == 0 && plan_.segments.empty()) {
    return;  // the top begins with the tokens
  }
  trainable_.with({}, {}, [&] {
    mx::array h = run_layers({0, first}, pass_.embedded());
    h = ended(h);
    borders_.push_back(h);
    for (const auto& segment : plan_.segments) {
      h = run_layers(segment, h);
      h = ended(h);
      borders_.push_back(h);
    }
  });
}

std::vector<size_t> BackwardPass::indices_of(const LayerRange& range) const {
  std::vector<size_t> indices;
  for (size_t i = 0; i < trainable_.names().size(); ++i) {
    int layer = trainable_.layer(i);
    if (layer >= range.first && layer < range.last) {
      indices.push_back(i);
    }
  }
  return indices;
}

Arrays BackwardPass::values_at(const std::vector<size_t>& indices) const {
  Arrays values;
  for (size_t index : indices) {
    values.push_back(trainable_.values()[index]);
  }
  return values;
}

void BackwardPass::add(
    const std::vector<size_t>& indices,
    const mx::array* gradients) {
  for (size_t i = 0; i < indices.size(); ++i) {
    auto& sum = gradients_[indices[i]];
    sum = sum ? mx::add(*sum, gradients[i]) : gradients[i];
  }
}

bool BackwardPass::top_is_all() const {
  return borders_.empty();
}

LossSums BackwardPass::differentiate_top(const ScoreLoss& loss) {
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
  Arrays now = result.gradients;
  now.push_back(result.loss);
  if (needs_input) {
    now.push_back(sums->count);
    for (const auto& metric : sums->metrics) {
      now.push_back(metric.second);
    }
    end_(now, held());
    from_above_ = now[indices.size()];
    borders_.pop_back();
  }
  add(indices, now.data());
  sums->loss = now[arguments.size()];
  return *sums;
}

mx::array BackwardPass::top_layers(mx::array h) const {
  for (int i = plan_.top.first; i < plan_.top.last; ++i) {
    if (!plan_.checkpoint_top) {
      h = pass_.layer(i, h, plan_.keeps_products);
      continue;
    }
    auto layer = checkpointed(
        [&, i](const Arrays& x) { return Arrays{pass_.layer(i, x[0])}; });
    h = layer({h})[0];
  }
  return h;
}

void BackwardPass::differentiate_segment(size_t index) {
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
  end_(result.cotangents, held() + input.nbytes());
  add(indices, result.cotangents.data());
  if (needs_input) {
    from_above_ = result.cotangents.back();
  }
}

void BackwardPass::differentiate_embedding() {
  std::vector<size_t> indices = indices_of({-1, 0});
  auto embedded = [&](const Arrays& x) {
    std::optional<mx::array> h;
    trainable_.with(indices, x, [&] { h = pass_.embedded(); });
    return Arrays{*h};
  };
  auto result = Vjp(embedded, 1).apply(values_at(indices), {*from_above_});
  end_(result.cotangents, held());
  add(indices, result.cotangents.data());
}

}  // namespace mlxx::train
