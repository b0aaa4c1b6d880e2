#include "mlxx/generate/compiled_step.h"

#include <algorithm>
#include <optional>

#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/core/leading_view.h"
#include "mlxx/core/weights_stamp.h"

namespace mlxx::generate {

namespace {

using cache::TokenSlot;
using Slots = std::vector<TokenSlot>;

constexpr const char* kPlace = "compiled decoding";
// Where a reduced axis has one element MLX leaves operations out of the graph
// that it needs later.
constexpr int kFewestVisible = 2;

// A layer's cache while the step is recorded: its state comes from the graph's
// inputs and leaves by its outputs.
class RecordedCache : public cache::KVCache {
 public:
  RecordedCache(
      mx::array keys,
      mx::array values,
      mx::array position,
      mx::array write_at,
      mx::array visible)
      : keys_(std::move(keys)),
        values_(std::move(values)),
        position_(std::move(position)),
        write_at_(std::move(write_at)),
        visible_(std::move(visible)) {}

  cache::KVView append(const mx::array& keys, const mx::array& values)
      override {
    if (appended_ || keys.shape(2) != 1) {
      refuse("appends other than one token");
    }
    appended_ = true;
    keys_ = mx::slice_update(keys_, keys, write_at_, {2});
    values_ = mx::slice_update(values_, values, write_at_, {2});
    return cache::DenseView{
        leading_view(keys_, 2, visible_),
        leading_view(values_, 2, visible_)};
  }
  kernels::Position position() const override {
    return kernels::Position(position_);
  }
  Mask make_mask(int L) const override {
    if (L != 1) {
      refuse("asks for the mask of other than one token");
    }
    return {"", std::nullopt};
  }
  // What was recorded for this layer, in the order of the outputs.
  void put_state(std::vector<mx::array>& outputs) const {
    if (!appended_) {
      refuse("leaves a cache as it is");
    }
    outputs.push_back(keys_);
    outputs.push_back(values_);
  }

  int offset() const override {
    refuse("needs the position as a number");
  }
  int trim(int) override {
    refuse("trims a cache");
  }
  bool is_trimmable() const override {
    return false;
  }
  size_t nbytes() const override {
    return keys_.nbytes() + values_.nbytes();
  }
  std::vector<mx::array> state() const override {
    refuse("reads a cache's state");
  }

 private:
  [[noreturn]] static void refuse(const char* what) {
    fail(ErrorKind::unsupported, kPlace, "the model {}", what);
  }

  mx::array keys_;
  mx::array values_;
  mx::array position_;
  mx::array write_at_;
  mx::array visible_;
  bool appended_ = false;
};

}  // namespace

// Which inputs the graph has: token, position, then `write_at` and `visible`
// of each group of layers whose caches agree in them, then each layer's keys
// and values.
struct CompiledStep::Layout {
  std::vector<size_t> group_of;  // per layer
  std::vector<size_t> leaders;   // per group, its first layer

  static constexpr size_t kFirstGroup = 2;
  size_t write_at(size_t layer) const {
    return kFirstGroup + 2 * group_of[layer];
  }
  size_t keys(size_t layer) const {
    return kFirstGroup + 2 * leaders.size() + 2 * layer;
  }

  explicit Layout(const Slots& slots) {
    for (size_t layer = 0; layer < slots.size(); ++layer) {
      auto leader = std::ranges::find_if(leaders, [&](size_t other) {
        return slots[other].kind == slots[layer].kind;
      });
      group_of.push_back(static_cast<size_t>(leader - leaders.begin()));
      if (leader == leaders.end()) {
        leaders.push_back(layer);
      }
    }
  }

  // Whether these slots go in as those that were recorded did.
  bool fits(const Slots& slots) const {
    if (slots.size() != group_of.size()) {
      return false;
    }
    for (size_t layer = 0; layer < slots.size(); ++layer) {
      const TokenSlot& mine = slots[layer];
      const TokenSlot& leader = slots[leaders[group_of[layer]]];
      if (mine.kind != leader.kind || mine.write_at != leader.write_at ||
          mine.visible != leader.visible) {
        return false;
      }
    }
    return true;
  }

  std::vector<mx::array>
  inputs(const mx::array& token, int position, const Slots& slots) const {
    std::vector<mx::array> inputs{token, mx::array(position)};
    for (size_t leader : leaders) {
      inputs.push_back(mx::array({slots[leader].write_at}, {1}));
      inputs.push_back(length_only(slots[leader].visible));
    }
    for (const TokenSlot& slot : slots) {
      inputs.push_back(slot.keys);
      inputs.push_back(slot.values);
    }
    return inputs;
  }
};

CompiledStep::CompiledStep(const models::Model& model)
    : model_(model),
      step_(
          [this](const std::vector<mx::array>& inputs) {
            return record(inputs);
          },
          {.stamp = [&model] {
            WeightsStamp stamp;
            model.visit([&](const std::string&, const Parameter& parameter) {
              stamp.add(parameter);
            });
            return stamp;
          }()}) {}

CompiledStep::~CompiledStep() = default;

std::vector<mx::array> CompiledStep::record(
    const std::vector<mx::array>& inputs) const {
  cache::CacheList caches;
  for (size_t layer = 0; layer < layout_->group_of.size(); ++layer) {
    size_t write_at = layout_->write_at(layer);
    size_t keys = layout_->keys(layer);
    caches.push_back(std::make_unique<RecordedCache>(
        inputs[keys],
        inputs[keys + 1],
        inputs[1],
        inputs[write_at],
        inputs[write_at + 1]));
  }
  std::vector<mx::array> outputs{model_.forward_last(inputs[0], caches)};
  for (const auto& cache : caches) {
    static_cast<const RecordedCache&>(*cache).put_state(outputs);
  }
  return outputs;
}

void CompiledStep::fall_back(std::string reason) {
  fallback_ = std::move(reason);
  log_info("decoding is not compiled: {}", fallback_);
  step_.reset();
  layout_.reset();
}

// False if there are no outputs, in which case the caches are as they were.
bool CompiledStep::run(
    const mx::array& token,
    cache::CacheList& caches,
    Slots& slots,
    std::vector<mx::array>& outputs) {
  try {
    if (!layout_) {
      layout_ = std::make_unique<Layout>(slots);
    }
    if (!layout_->fits(slots)) {
      fall_back("the layers' caches differ from those of the first step");
      return false;
    }
    outputs = step_(layout_->inputs(token, caches[0]->offset(), slots));
  } catch (const std::exception& error) {
    fall_back(error.what());
    return false;
  }
  return true;
}

mx::array CompiledStep::forward_last(
    const mx::array& token,
    cache::CacheList& caches) {
  if (!fallback_.empty()) {
    return model_.forward_last(token, caches);
  }
  // Dropped before the caches are written: that happens in place where no one
  // else holds the arrays.
  Slots slots;
  for (const auto& cache : caches) {
    auto slot = cache->token_slot();
    if (cache->offset() != caches[0]->offset()) {
      fall_back("the layers' caches are at different positions");
      slot.reset();
    }
    if (!slot) {
      if (fallback_.empty() && cache->offset() > 0) {
        fall_back(
            "the model's caches are written by their own kernel or in blocks");
      }
      slots.clear();
      return model_.forward_last(token, caches);
    }
    slots.push_back(std::move(*slot));
  }
  if (slots.empty()) {
    fall_back("the model has no caches");
    return model_.forward_last(token, caches);
  }
  bool few = std::ranges::any_of(slots, [](const TokenSlot& slot) {
    return slot.visible < kFewestVisible;
  });
  std::vector<mx::array> outputs;
  if (few || !run(token, caches, slots, outputs)) {
    slots.clear();
    return model_.forward_last(token, caches);
  }
  slots.clear();
  for (size_t layer = 0; layer < caches.size(); ++layer) {
    caches[layer]->take_token(
        std::move(outputs[1 + 2 * layer]),
        std::move(outputs[2 + 2 * layer]));
  }
  if (!step_.ran_compiled()) {
    fall_back("MLX does not compile here (compile mode, or no C++ compiler)");
  } else if (!once_.holds()) {
    fall_back("the step was traced again, so a shape or dtype has changed");
  } else {
    ++compiled_steps_;
  }
  return outputs[0];
}

}  // namespace mlxx::generate
