#include "mlxx/kernels/decode_step/decoder_program.h"

#include <algorithm>
#include <cmath>

#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

// Rows of a pass: their activations stay in the caches of the processor.
constexpr int kPassRows = 256;

// From so many new tokens of a sequence, queries are computed in tiles.
constexpr int kTokensInTiles = 4;
constexpr int64_t kMostPanelsAtATime = 8;

template <typename T>
void at_least(std::vector<T>& v, int64_t size) {
  if (v.size() < static_cast<size_t>(size)) {
    v.resize(size);
  }
}

}  // namespace

KvShape kv_shape(const DecoderWeights& weights, const Selection& selection) {
  bool exact = selection.activations == ActivationForm::float32;
  return {
      static_cast<int>(weights.layers.size()),
      weights.kv_heads,
      weights.head_size,
      exact ? KvType::float32 : KvType::float16};
}

DecoderProgram::DecoderProgram(
    std::shared_ptr<const DecoderWeights> weights,
    const Selection& selection)
    : weights_(std::move(weights)),
      products_(product_kernels(selection)),
      row_kernels_(row_kernels(selection.instruction_set)),
      layer_kernels_(layer_kernels(selection.instruction_set)),
      attention_(block_attention(selection.instruction_set)),
      kv_type_(kv_shape(*weights_, selection).type),
      job_(selection.threads) {
  for (int part = 0; part < kParts; ++part) {
    prepared_.emplace_back(kernels_of(static_cast<Part>(part)));
  }
  for (int thread = 0; thread < job_.threads(); ++thread) {
    scratch_.push_back({prepared_, {}, -1, {}, {}, {}, {}, {}});
  }
  find_needs();
  angle_starts_.push_back(0);
  for (const auto& table : weights_->rotations) {
    angle_starts_.push_back(
        angles() + static_cast<int64_t>(table.per_position.size()));
  }
}

// What one byte costs differs: on a model of 135 million parameters and 2,000
// tokens of prose, rounding the inputs of every product gives a KL divergence
// of 5.7e-3, of which the projections to queries, keys and values make 2.3e-3,
// gate and up 1.6e-3, down 1.3e-3, the head 0.6e-3 and the output projection
// 0.5e-3. Where there is little to gain in time, two bytes stay.
ProductKernels DecoderProgram::kernels_of(Part part) const {
  ProductKernels kernels = products_;
  if (kernels.form == ActivationForm::int8 && part != Part::mlp &&
      part != Part::output) {
    kernels.form = ActivationForm::int16;
  }
  return kernels;
}

void DecoderProgram::find_needs() {
  auto need = [&](Part part, const PanelLinear& linear) {
    if (linear.matrix) {
      needs_[static_cast<int>(part)].add(
          linear.matrix->layout(),
          kernels_of(part));
    }
  };
  for (const auto& layer : weights_->layers) {
    need(Part::attention, layer.q);
    need(Part::attention, layer.k);
    need(Part::attention, layer.v);
    need(Part::output, layer.o);
    need(Part::mlp, layer.gate);
    need(Part::mlp, layer.up);
    need(Part::down, layer.down);
  }
  need(Part::head, weights_->head);
}

bool DecoderProgram::places_itself(int index) const {
  const auto& w = layer(index);
  return places_itself_ && !w.q_norm.whole && !w.k_norm.whole;
}

int64_t DecoderProgram::input_size(Part part, int index) const {
  switch (part) {
    case Part::output:
      return query_size();
    case Part::down:
      return inner_size(index);
    default:
      return weights_->hidden_size;
  }
}

int64_t DecoderProgram::row_count(Part part) const {
  return part == Part::head ? out_rows_.size() : rows_.size();
}

void DecoderProgram::run(
    std::span<DecoderInput> inputs,
    LogitRows wanted,
    float* logits) {
  inputs_ = inputs;
  range_ = {0, static_cast<int>(weights_->layers.size())};
  whole_ = true;
  wanted_ = wanted;
  out_ = logits;
  run_passes();
}

void DecoderProgram::run_layer(
    int index,
    std::span<DecoderInput> inputs,
    float* out) {
  inputs_ = inputs;
  range_ = {index, index + 1};
  whole_ = false;
  out_ = out;
  run_passes();
}

void DecoderProgram::run_passes() {
  for (auto& input : inputs_) {
    for (auto& [from, to] : input.kv.copies) {
      to->copy_from(*from);
    }
  }
  int total = inputs_.front().count;
  int pass = std::max<int>(1, kPassRows / static_cast<int>(inputs_.size()));
  for (int first = 0; first < total; first += pass) {
    run_pass(first, std::min(pass, total - first));
  }
}

void DecoderProgram::want_rows(int first, int count) {
  out_rows_.clear();
  if (!whole_) {
    return;
  }
  int total = inputs_.front().count;
  int64_t vocabulary = weights_->head.matrix->out();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    int start = static_cast<int>(i) * count;
    if (wanted_ == LogitRows::all) {
      for (int t = 0; t < count; ++t) {
        int64_t at = static_cast<int64_t>(i) * total + first + t;
        out_rows_.emplace_back(start + t, out_ + at * vocabulary);
      }
    } else if (first + count == total) {
      out_rows_.emplace_back(start + count - 1, out_ + i * vocabulary);
    }
  }
}

void DecoderProgram::run_pass(int first, int count) {
  place_rows(first, count);
  want_rows(first, count);
  find_ranks();
  places_itself_ = count == 1;
  tiles_ = 0;
  if (count >= kTokensInTiles) {
    int64_t rows = kSplitQueries / group();
    tiles_ = (count + rows - 1) / rows;
  }
  plan();
  for (auto& scratch : scratch_) {
    scratch.prepared_for = -1;
    at_least(scratch.tile, row_count(Part::mlp) * kLanes);
    at_least(scratch.second_tile, row_count(Part::mlp) * kLanes);
    at_least(
        scratch.row,
        std::max<int64_t>(weights_->hidden_size, query_size()));
    at_least(scratch.outs, int64_t{kSplitQueries} * weights_->head_size);
  }
  job_.run(phases_, [&](int step, int thread, int64_t begin, int64_t end) {
    do_items(step, thread, begin, end);
  });
}

void DecoderProgram::place_rows(int first, int count) {
  rows_.clear();
  int longest = 0;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const auto& input = inputs_[i];
    for (int t = first; t < first + count; ++t) {
      rows_.push_back({static_cast<int>(i), input.kv.from + t, t});
      longest = std::max(longest, input.kv.from + t + 1);
    }
  }
  splits_ = (longest + kSplitLength - 1) / kSplitLength;
  auto n = static_cast<int64_t>(rows_.size());
  at_least(cosines_, n * angles());
  at_least(sines_, n * angles());
  at_least(x_, n * weights_->hidden_size);
  at_least(queries_, n * query_size());
  at_least(keys_, n * kv_size());
  at_least(values_, n * kv_size());
  at_least(attention_rows_, n * query_size());
  for (int i = range_.begin; i < range_.end; ++i) {
    at_least(inner_, n * inner_size(i));
    if (layer(i).after_attention || layer(i).after_mlp) {
      at_least(branch_, n * weights_->hidden_size);
    }
  }
  if (count < kTokensInTiles) {
    at_least(split_states_, n * weights_->heads * splits_);
    at_least(split_outs_, n * query_size() * splits_);
  }
}

void DecoderProgram::add(Action action, Part part, int index, int64_t items) {
  steps_.push_back({action, part, index});
  phases_.push_back({items, 1});
}

void DecoderProgram::add_products(Part part, int index, int64_t items) {
  if (row_count(part) > kRowsPreparedByAll) {
    prepared_[static_cast<int>(part)].start(
        row_count(part),
        input_size(part, index),
        needs_[static_cast<int>(part)]);
    add(Action::prepare, part, index, row_count(part));
  }
  int64_t grain = std::clamp<int64_t>(
      items / (4 * job_.threads()),
      1,
      row_count(part) > kRowsPreparedByAll ? 1 : kMostPanelsAtATime);
  steps_.push_back({Action::multiply, part, index});
  phases_.push_back({items, grain});
}

void DecoderProgram::add_join(Part part, int index) {
  const auto& w = layer(index);
  if (part == Part::output ? w.after_attention : w.after_mlp) {
    add(Action::join, part, index, row_count(part));
  }
}

void DecoderProgram::plan_layer(int index) {
  const auto& w = layer(index);
  auto n = static_cast<int64_t>(rows_.size());
  int64_t per_row = weights_->kv_heads;
  add_products(
      Part::attention,
      index,
      w.q.matrix->panels() + w.k.matrix->panels() + w.v.matrix->panels());
  bool parallel = w.parallel && w.has_network();
  if (parallel) {  // before attention adds to what the network reads
    add_products(Part::mlp, index, w.up.matrix->panels());
  }
  if (!places_itself(index)) {
    add(Action::rotate, Part::attention, index, n);
  }
  add(Action::attend,
      Part::attention,
      index,
      tiles_ > 0 ? static_cast<int64_t>(inputs_.size()) * per_row * tiles_
                 : n * per_row * splits_);
  add_products(Part::output, index, w.o.matrix->panels());
  add_join(Part::output, index);
  if (!w.has_network()) {
    return;
  }
  if (!parallel) {
    add_products(Part::mlp, index, w.up.matrix->panels());
  }
  add_products(Part::down, index, w.down.matrix->panels());
  add_join(Part::down, index);
}

void DecoderProgram::plan() {
  steps_.clear();
  phases_.clear();
  auto n = static_cast<int64_t>(rows_.size());
  add(Action::begin, Part::attention, 0, n);
  for (int i = range_.begin; i < range_.end; ++i) {
    plan_layer(i);
  }
  if (!whole_) {
    add(Action::give, Part::attention, 0, n);
  } else if (!out_rows_.empty()) {
    add_products(Part::head, 0, weights_->head.matrix->panels());
  }
}

void DecoderProgram::do_items(
    int step,
    int thread,
    int64_t begin,
    int64_t end) {
  auto [action, part, layer] = steps_[step];
  Scratch& scratch = scratch_[thread];
  for (int64_t item = begin; item < end; ++item) {
    switch (action) {
      case Action::begin:
        begin_row(item);
        break;
      case Action::prepare:
        prepare(
            part,
            layer,
            item,
            prepared_[static_cast<int>(part)],
            reduced_,
            scratch);
        break;
      case Action::multiply:
        multiply(step, item, scratch);
        break;
      case Action::rotate:
        rotate(layer, item);
        break;
      case Action::attend:
        attend(layer, item, scratch);
        break;
      case Action::join:
        join(part, layer, item, scratch);
        break;
      case Action::give:
        give_row(item);
        break;
    }
  }
}

}  // namespace mlxx::kernels
