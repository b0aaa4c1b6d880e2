// The products of a decoder's layers and what is done with their results.
#include <algorithm>

#include "mlxx/kernels/activation/activation_cpu.h"
#include "mlxx/kernels/decode_step/decoder_program.h"

namespace mlxx::kernels {

const float*
DecoderProgram::input_row(Part part, int index, int64_t row, Scratch& scratch) {
  auto normed_row = [&](int64_t from, const NormWeights& norm) {
    const float* x = x_.data() + from * weights_->hidden_size;
    return normed(norm, x, scratch.row.data());
  };
  switch (part) {
    case Part::attention:
      return normed_row(row, layer(index).before_attention);
    case Part::output:
      return tiles_ > 0 ? attention_rows_.data() + row * query_size()
                        : join_splits(index, row, scratch);
    case Part::mlp:
      return normed_row(row, layer(index).before_mlp);
    case Part::down:
      return inner_.data() + row * inner_size(index);
    case Part::head:
      break;
  }
  return normed_row(out_rows_[row].first, weights_->final_norm);
}

void DecoderProgram::prepare(
    Part part,
    int index,
    int64_t row,
    PreparedRows& into,
    std::vector<float>& reduced,
    Scratch& scratch) {
  const float* x = input_row(part, index, row, scratch);
  into.prepare(row, x);
  if (reduced_size_ > 0) {
    reduce(part, index, row, x, reduced);
  }
}

const float* DecoderProgram::product(
    const PanelLinear& linear,
    int matrix,
    int64_t panel,
    const Read& read,
    Scratch& scratch,
    std::vector<float>& tile) {
  ActivationRows activations = read.rows.view(linear.matrix->layout());
  linear.matrix
      ->multiply_panel(panel, activations, scratch.panels, tile.data());
  if (reduced_size_ > 0) {
    change_tile(read, matrix, panel, activations.rows, tile.data());
  }
  if (!linear.bias.empty()) {
    int64_t first = panel * kLanes;
    int64_t count = std::min<int64_t>(kLanes, linear.matrix->out() - first);
    for (int64_t row = 0; row < activations.rows; ++row) {
      for (int64_t i = 0; i < count; ++i) {
        tile[row * kLanes + i] += linear.bias[first + i];
      }
    }
  }
  return tile.data();
}

namespace {

struct Target {
  float* rows;  // [rows, stride]
  int64_t stride;
  int64_t size;
};

void store_tile(
    const float* tile,
    int64_t rows,
    int64_t panel,
    const Target& target) {
  int64_t first = panel * kLanes;
  int64_t count = std::min<int64_t>(kLanes, target.size - first);
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(
        tile + row * kLanes,
        count,
        target.rows + row * target.stride + first);
  }
}

void add_tile(
    const float* tile,
    int64_t rows,
    int64_t panel,
    float multiplier,
    const Target& target) {
  int64_t first = panel * kLanes;
  int64_t count = std::min<int64_t>(kLanes, target.size - first);
  for (int64_t row = 0; row < rows; ++row) {
    float* to = target.rows + row * target.stride + first;
    for (int64_t i = 0; i < count; ++i) {
      to[i] += tile[row * kLanes + i] * multiplier;
    }
  }
}

}  // namespace

void DecoderProgram::multiply(int step, int64_t item, Scratch& scratch) {
  auto [action, part, index] = steps_[step];
  int64_t n = row_count(part);
  const PreparedRows* rows = &prepared_[static_cast<int>(part)];
  const float* reduced = reduced_.data();
  if (n <= kRowsPreparedByAll) {
    PreparedRows& own = scratch.prepared[static_cast<int>(part)];
    rows = &own;
    reduced = scratch.reduced.data();
    if (scratch.prepared_for != step) {
      scratch.prepared_for = step;
      own.start(n, input_size(part, index), needs_[static_cast<int>(part)]);
      for (int64_t row = 0; row < n; ++row) {
        prepare(part, index, row, own, scratch.reduced, scratch);
      }
    }
  }
  Read read{part, index, *rows, reduced};
  auto multiplied = [&](const PanelLinear& linear, int matrix, int64_t panel) {
    return product(linear, matrix, panel, read, scratch, scratch.tile);
  };
  int64_t hidden = weights_->hidden_size;
  switch (part) {
    case Part::attention: {
      const auto& w = layer(index);
      const PanelLinear* linears[] = {&w.q, &w.k, &w.v};
      float* targets[] = {queries_.data(), keys_.data(), values_.data()};
      int which = 0;
      while (item >= linears[which]->matrix->panels()) {
        item -= linears[which]->matrix->panels();
        ++which;
      }
      int64_t size = linears[which]->matrix->out();
      store_tile(
          multiplied(*linears[which], which, item),
          n,
          item,
          {targets[which], size, size});
      break;
    }
    case Part::output:
    case Part::down: {
      const auto& w = layer(index);
      const float* tile =
          multiplied(part == Part::output ? w.o : w.down, 0, item);
      if (part == Part::output ? w.after_attention : w.after_mlp) {
        store_tile(tile, n, item, {branch_.data(), hidden, hidden});
      } else {
        add_tile(
            tile,
            n,
            item,
            w.residual_multiplier,
            {x_.data(), hidden, hidden});
      }
      break;
    }
    case Part::mlp:
      multiply_inner(read, item, scratch);
      break;
    case Part::head:
      multiply_head(read, item, scratch);
      break;
  }
}

void DecoderProgram::multiply_inner(
    const Read& read,
    int64_t item,
    Scratch& scratch) {
  const auto& w = layer(read.layer);
  int64_t n = row_count(Part::mlp);
  ActivationKernel kernel = activation_kernel(layer_kernels_, w.activation);
  const float* up = product(w.up, 1, item, read, scratch, scratch.second_tile);
  const float* activated = up;
  const float* factor = nullptr;
  if (w.gate.matrix) {
    activated = product(w.gate, 0, item, read, scratch, scratch.tile);
    factor = up;
  }
  int64_t size = inner_size(read.layer);
  int64_t first = item * kLanes;
  int64_t count = std::min<int64_t>(kLanes, size - first);
  for (int64_t row = 0; row < n; ++row) {
    kernel(
        activated + row * kLanes,
        factor ? factor + row * kLanes : nullptr,
        count,
        inner_.data() + row * size + first);
  }
}

void DecoderProgram::multiply_head(
    const Read& read,
    int64_t item,
    Scratch& scratch) {
  int64_t n = row_count(Part::head);
  product(weights_->head, 0, item, read, scratch, scratch.tile);
  float* tile = scratch.tile.data();
  float multiplier = weights_->logits_multiplier;
  if (multiplier != 1) {
    for (int64_t i = 0; i < n * kLanes; ++i) {
      tile[i] *= multiplier;
    }
  }
  if (weights_->final_softcap > 0) {
    layer_kernels_.softcap(tile, weights_->final_softcap, n * kLanes, tile);
  }
  int64_t size = weights_->head.matrix->out();
  for (int64_t row = 0; row < n; ++row) {
    store_tile(
        tile + row * kLanes,
        1,
        item,
        {out_rows_[row].second, size, size});
  }
}

}  // namespace mlxx::kernels
