#include "mlxx/kernels/decode_step/decoder_program.h"

#include <algorithm>
#include <cmath>

#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

// Rows of a pass: their activations stay in the caches of the processor.
constexpr int kPassRows = 512;

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
      attention_(block_attention(selection.instruction_set)),
      kv_type_(kv_shape(*weights_, selection).type),
      job_(selection.threads) {
  for (int part = 0; part < kParts; ++part) {
    prepared_.emplace_back(kernels_of(static_cast<Part>(part)));
  }
  for (int thread = 0; thread < job_.threads(); ++thread) {
    scratch_.push_back({prepared_, -1, {}, {}, {}, {}, {}});
  }
  find_needs();
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
    needs_[static_cast<int>(part)].add(
        linear.matrix->layout(),
        kernels_of(part));
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

int64_t DecoderProgram::input_size(Part part) const {
  switch (part) {
    case Part::output:
      return query_size();
    case Part::down:
      return weights_->intermediate_size;
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
  logits_ = logits;
  for (auto& input : inputs) {
    for (auto& [from, to] : input.kv.copies) {
      to->copy_from(*from);
    }
  }
  int total = inputs.front().count;
  int pass = std::max<int>(1, kPassRows / static_cast<int>(inputs.size()));
  for (int first = 0; first < total; first += pass) {
    run_pass(first, std::min(pass, total - first), wanted, total);
  }
}

void DecoderProgram::run_pass(
    int first,
    int count,
    LogitRows wanted,
    int total) {
  place_rows(first, count);
  out_rows_.clear();
  int64_t vocabulary = weights_->head.matrix->out();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    int start = static_cast<int>(i) * count;
    if (wanted == LogitRows::all) {
      for (int t = 0; t < count; ++t) {
        int64_t at = static_cast<int64_t>(i) * total + first + t;
        out_rows_.emplace_back(start + t, logits_ + at * vocabulary);
      }
    } else if (first + count == total) {
      out_rows_.emplace_back(start + count - 1, logits_ + i * vocabulary);
    }
  }
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
      rows_.push_back(
          {static_cast<int>(i), input.kv.from + t, input.tokens[t]});
      longest = std::max(longest, input.kv.from + t + 1);
    }
  }
  splits_ = (longest + kSplitLength - 1) / kSplitLength;
  auto n = static_cast<int64_t>(rows_.size());
  auto pairs = static_cast<int64_t>(weights_->rotations.size());
  at_least(cosines_, n * pairs);
  at_least(sines_, n * pairs);
  at_least(x_, n * weights_->hidden_size);
  at_least(queries_, n * query_size());
  at_least(keys_, n * kv_size());
  at_least(values_, n * kv_size());
  at_least(attention_rows_, n * query_size());
  at_least(inner_, n * weights_->intermediate_size);
  if (count < kTokensInTiles) {
    at_least(split_states_, n * weights_->heads * splits_);
    at_least(split_outs_, n * query_size() * splits_);
  }
}

void DecoderProgram::add_products(Part part, int layer, int64_t items) {
  if (row_count(part) > kRowsPreparedByAll) {
    prepared_[static_cast<int>(part)].start(
        row_count(part),
        input_size(part),
        needs_[static_cast<int>(part)]);
    steps_.push_back({Action::prepare, part, layer});
    phases_.push_back({row_count(part), 1});
  }
  int64_t grain = std::clamp<int64_t>(
      items / (4 * job_.threads()),
      1,
      row_count(part) > kRowsPreparedByAll ? 1 : kMostPanelsAtATime);
  steps_.push_back({Action::multiply, part, layer});
  phases_.push_back({items, grain});
}

void DecoderProgram::plan() {
  steps_.clear();
  phases_.clear();
  auto n = static_cast<int64_t>(rows_.size());
  auto add = [&](Action action, int index, int64_t items) {
    steps_.push_back({action, Part::attention, index});
    phases_.push_back({items, 1});
  };
  int64_t per_row = weights_->kv_heads;
  int64_t attended = tiles_ > 0
      ? static_cast<int64_t>(inputs_.size()) * per_row * tiles_
      : n * per_row * splits_;
  add(Action::embed, 0, n);
  for (int i = 0; i < static_cast<int>(weights_->layers.size()); ++i) {
    const auto& w = layer(i);
    add_products(
        Part::attention,
        i,
        w.q.matrix->panels() + w.k.matrix->panels() + w.v.matrix->panels());
    if (!places_itself_) {
      add(Action::rotate, i, n);
    }
    add(Action::attend, i, attended);
    add_products(Part::output, i, w.o.matrix->panels());
    add_products(Part::mlp, i, w.gate.matrix->panels());
    add_products(Part::down, i, w.down.matrix->panels());
  }
  if (!out_rows_.empty()) {
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
      case Action::embed:
        embed(item);
        break;
      case Action::prepare:
        prepare(part, layer, item, prepared_[static_cast<int>(part)], scratch);
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
    }
  }
}

void DecoderProgram::embed(int64_t row) {
  const Row& at = rows_[row];
  weights_->embedding->copy_row(
      at.token,
      x_.data() + row * weights_->hidden_size);
  const auto& rotations = weights_->rotations;
  double scale = weights_->rotation_scale;
  for (size_t i = 0; i < rotations.size(); ++i) {
    double angle = at.position * rotations[i];
    cosines_[row * rotations.size() + i] =
        static_cast<float>(scale * std::cos(angle));
    sines_[row * rotations.size() + i] =
        static_cast<float>(scale * std::sin(angle));
  }
}

}  // namespace mlxx::kernels
