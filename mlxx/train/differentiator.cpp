#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "mlxx/base/error.h"
#include "mlxx/core/device.h"
#include "mlxx/core/gpu_queue.h"
#include "mlxx/core/memory.h"
#include "mlxx/plan/graph_memory.h"
#include "mlxx/train/backward_pass.h"
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

class Evaluation : public PartEnd {
 public:
  void operator()(Arrays& results, size_t) override {
    mx::eval(results);
  }
};

// Of operations on whole texts, which take longer than to hand them out.
constexpr size_t kDispatchesAhead = 30;
// Lots of operations that MLX hands to a GPU before it waits, and dispatches of
// an operation as a plan of memory counts them.
constexpr size_t kLotsAhead = 11;
constexpr size_t kDispatches = 2;

// Bytes that a pass takes at least, and as far as nothing makes MLX wait.
struct Peak {
  size_t least = 0;
  size_t freely = 0;
};

class Prediction : public PartEnd {
 public:
  void operator()(Arrays& results, size_t held) override {
    auto peak = [&](size_t ahead) {
      return held + plan::peak_of_graph(results, {}, ahead);
    };
    peak_.least = std::max(peak_.least, peak(kDispatchesAhead));
    if (backend() != Backend::cpu) {
      const auto lot = static_cast<size_t>(operations_given_to_gpu());
      peak_.freely =
          std::max(peak_.freely, peak(kDispatches * kLotsAhead * lot));
    }
    for (auto& result : results) {
      result = mx::array(result.shape(), result.dtype(), nullptr, {});
    }
  }
  Peak peak() const {
    return {peak_.least, std::max(peak_.least, peak_.freely)};
  }

 private:
  Peak peak_;
};

// While it lives, MLX on a GPU waits for what was handed out before, where more
// than this is held: it runs far ahead of the device else and frees nothing
// before that is done. MLX's CPU backend knows no limit.
class WaitingLimit {
 public:
  explicit WaitingLimit(size_t bytes)
      : before_(
            backend() == Backend::cpu || bytes == 0
                ? std::nullopt
                : std::optional(mx::set_memory_limit(bytes))) {}
  ~WaitingLimit() {
    if (before_) {
      mx::set_memory_limit(*before_);
    }
  }
  WaitingLimit(const WaitingLimit&) = delete;
  WaitingLimit& operator=(const WaitingLimit&) = delete;

 private:
  std::optional<size_t> before_;
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
    first_ = first;
    layers_ = layers;
    limit_ = options.memory_limit != 0 ? options.memory_limit : device_limit();
    switch (options.recompute) {
      case Recompute::automatic:
        automatic_ = true;
        [[fallthrough]];
      case Recompute::none:
        plan_ = cut_in_segments(0, layers, 1, layers);
        break;
      case Recompute::light:
        plan_ = cut_in_segments(0, layers, 1, layers);
        plan_.keeps_products = true;
        break;
      case Recompute::checkpoint:
        plan_ = cut_in_segments(0, layers, 1, layers);
        plan_.checkpoint_top = true;
        break;
      case Recompute::segments: {
        int step = std::max(1, options.segment_layers);
        plan_ = cut_in_segments(first, layers, step, step);
        plan_.keeps_products = computes_lightly();
        break;
      }
    }
    plan_.waits = options.memory_limit != 0 && plan_.segments.empty();
  }

  Result apply(const data::Batch& batch, const ScoreLoss& loss) const override {
    TextPass pass(model_, batch, trains_head_);
    Evaluation end;
    const SegmentPlan& plan = plan_for(batch);
    WaitingLimit waiting(plan.waits ? limit_ - slack() / 2 : 0);
    auto result = BackwardPass(pass, trainable_, plan, tied_, end).apply(loss);
    if (backend() != Backend::cpu) {
      // Here, where MLX waits for what it has handed out.
      Arrays all = result.gradients;
      all.push_back(result.sums.loss);
      mx::eval(all);
    }
    return result;
  }

  plan::TrainingMemory memory(const data::Batch& batch, size_t optimizer)
      const override {
    plan::TrainingMemory memory;
    std::set<std::uintptr_t> weights;
    model_.visit([&](const std::string&, const Parameter& parameter) {
      memory.weights += parameter.nbytes();
      if (!parameter.packed() && parameter.is_set()) {
        weights.insert(parameter.value().id());
      }
    });
    for (const auto& value : trainable_.values()) {
      memory.trained += weights.contains(value.id()) ? 0 : value.nbytes();
    }
    memory.optimizer = optimizer;
    const SegmentPlan& plan = plan_for(batch);
    const Peak peak = activations(batch, plan);
    const size_t others = memory.weights + memory.trained + optimizer;
    memory.activations = !plan.waits
        ? peak.freely
        : std::clamp(
              limit_ > others ? limit_ - others : 0,
              peak.least,
              peak.freely);
    return memory;
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
    return automatic_ && chosen_.empty() ? "automatic" : plan_.description();
  }

 private:
  // On the CPU norms and activations take longer than their memory is worth.
  static bool computes_lightly() {
    return backend() != Backend::cpu;
  }

  // What a GPU is given beyond what it needs: where it has less, MLX waits at
  // every operation.
  size_t slack() const {
    return backend() == Backend::cpu ? 0 : limit_ / 16;
  }

  static size_t device_limit() {
    auto device = describe_device();
    // Something is left for other programs and the next length.
    uint64_t more = memory_use().active + device.available_bytes / 10 * 9;
    return device.working_set_bytes == 0
        ? more
        : std::min(more, device.working_set_bytes);
  }

  // Bytes while the gradients of a batch are computed.
  Peak activations(const data::Batch& batch, const SegmentPlan& plan) const {
    TextPass pass(model_, batch, trains_head_);
    Prediction prediction;
    BackwardPass backward(pass, trainable_, plan, tied_, prediction);
    auto result = backward.apply([](const mx::array& scores) {
      return LossSums{mx::negative(mx::sum(scores)), mx::array(1.0f)};
    });
    size_t held = backward.held();
    if (plan.segments.empty()) {
      result.gradients.push_back(result.sums.loss);
      held = 0;
    }
    prediction(result.gradients, held);
    return prediction.peak();
  }

  // The fewest layers that are computed twice, as far as memory goes.
  const SegmentPlan& plan_for(const data::Batch& batch) const {
    if (!automatic_ || layers_ == 0) {
      return plan_;
    }
    constexpr int64_t kStep = 256;
    auto key = std::tuple(
        batch.rows,
        batch.length,
        static_cast<int>(batch.segments.size()),
        (batch.target_count() + kStep - 1) / kStep);
    auto found = chosen_.find(key);
    if (found == chosen_.end()) {
      found = chosen_.emplace(key, choose(batch)).first;
    }
    plan_ = found->second;
    return plan_;
  }

  SegmentPlan choose(const data::Batch& batch) const {
    size_t trained = 0;
    for (const auto& value : trainable_.values()) {
      trained += value.nbytes();
    }
    // An optimizer that keeps two numbers for each, as if not there yet.
    size_t taken = memory_use().active + 2 * trained;
    size_t budget = limit_ > taken ? limit_ - taken : 0;
    // MLX may be made to wait where one graph is evaluated; of many each would
    // find the memory that is kept for reuse given away.
    auto fits = [&](const SegmentPlan& plan) {
      Peak peak = activations(batch, plan);
      return plan.segments.empty() ? peak.least + slack() <= budget
                                   : peak.freely + slack() / 2 <= budget;
    };
    SegmentPlan whole = cut_in_segments(0, layers_, 1, layers_);
    whole.waits = true;
    if (fits(whole)) {
      return whole;
    }
    const bool light = computes_lightly();
    whole.keeps_products = light;
    if (light && fits(whole)) {
      return whole;
    }
    auto cut = [&](int top) {
      SegmentPlan plan = cut_in_segments(first_, layers_, 1, top);
      plan.keeps_products = light;
      return plan;
    };
    int good = 1;
    int bad = layers_ - first_;
    while (bad - good > 1) {
      int middle = good + (bad - good) / 2;
      bool fit = fits(cut(middle));
      (fit ? good : bad) = middle;
    }
    SegmentPlan plan = cut(good);
    plan.waits = !fits(plan);
    return plan;
  }

  const models::Model& model_;
  Trainable& trainable_;
  mutable SegmentPlan plan_;
  bool tied_ = false;
  bool trains_head_ = false;
  bool automatic_ = false;
  size_t limit_ = 0;
  int first_ = 0;
  int layers_ = 0;
  // By rows, length, segments and targets.
  mutable std::map<std::tuple<int, int, int, int64_t>, SegmentPlan> chosen_;
};

}  // namespace

std::unique_ptr<Differentiator> make_differentiator(
    const models::Model& model,
    Trainable& trainable,
    const DifferentiateOptions& options) {
  return std::make_unique<ModelDifferentiator>(model, trainable, options);
}

}  // namespace mlxx::train
