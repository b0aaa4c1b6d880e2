// The products of a decoder's layers and what is done with their results.
#include <algorithm>

#include "mlxx/kernels/decode_step/decoder_program.h"

namespace mlxx::kernels {

void DecoderProgram::prepare(
    Part part,
    int index,
    int64_t row,
    PreparedRows& into,
    Scratch& scratch) {
  int64_t size = weights_->hidden_size;
  auto normed = [&](int64_t from, const std::vector<float>& weight) {
    row_kernels_.rms_norm(
        x_.data() + from * size,
        weight.data(),
        weights_->norm_eps,
        size,
        scratch.row.data());
    return scratch.row.data();
  };
  switch (part) {
    case Part::attention:
      into.prepare(row, normed(row, layer(index).input_norm));
      break;
    case Part::output:
      into.prepare(
          row,
          tiles_ > 0 ? attention_rows_.data() + row * query_size()
                     : join_splits(row, scratch));
      break;
    case Part::mlp:
      into.prepare(row, normed(row, layer(index).post_norm));
      break;
    case Part::down:
      into.prepare(row, inner_.data() + row * weights_->intermediate_size);
      break;
    case Part::head:
      into.prepare(row, normed(out_rows_[row].first, weights_->final_norm));
      break;
  }
}

const float* DecoderProgram::product(
    const PanelLinear& linear,
    int64_t panel,
    const PreparedRows& rows,
    Scratch& scratch,
    std::vector<float>& tile) {
  ActivationRows activations = rows.view(linear.matrix->layout());
  linear.matrix
      ->multiply_panel(panel, activations, scratch.panels, tile.data());
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
    const Target& target) {
  int64_t first = panel * kLanes;
  int64_t count = std::min<int64_t>(kLanes, target.size - first);
  for (int64_t row = 0; row < rows; ++row) {
    float* to = target.rows + row * target.stride + first;
    for (int64_t i = 0; i < count; ++i) {
      to[i] += tile[row * kLanes + i];
    }
  }
}

}  // namespace

void DecoderProgram::multiply(int step, int64_t item, Scratch& scratch) {
  auto [action, part, index] = steps_[step];
  int64_t n = row_count(part);
  const PreparedRows* rows = &prepared_[static_cast<int>(part)];
  if (n <= kRowsPreparedByAll) {
    PreparedRows& own = scratch.prepared[static_cast<int>(part)];
    rows = &own;
    if (scratch.prepared_for != step) {
      scratch.prepared_for = step;
      own.start(n, input_size(part), needs_[static_cast<int>(part)]);
      for (int64_t row = 0; row < n; ++row) {
        prepare(part, index, row, own, scratch);
      }
    }
  }
  auto multiplied = [&](const PanelLinear& linear, int64_t panel) {
    return product(linear, panel, *rows, scratch, scratch.tile);
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
          multiplied(*linears[which], item),
          n,
          item,
          {targets[which], size, size});
      break;
    }
    case Part::output:
    case Part::down: {
      const auto& w = layer(index);
      add_tile(
          multiplied(part == Part::output ? w.o : w.down, item),
          n,
          item,
          {x_.data(), hidden, hidden});
      break;
    }
    case Part::mlp: {
      const float* gate = multiplied(layer(index).gate, item);
      const float* up =
          product(layer(index).up, item, *rows, scratch, scratch.second_tile);
      int64_t size = weights_->intermediate_size;
      int64_t first = item * kLanes;
      int64_t count = std::min<int64_t>(kLanes, size - first);
      for (int64_t row = 0; row < n; ++row) {
        row_kernels_.swiglu(
            gate + row * kLanes,
            up + row * kLanes,
            count,
            inner_.data() + row * size + first);
      }
      break;
    }
    case Part::head: {
      const float* tile = multiplied(weights_->head, item);
      int64_t size = weights_->head.matrix->out();
      for (int64_t row = 0; row < n; ++row) {
        store_tile(
            tile + row * kLanes,
            1,
            item,
            {out_rows_[row].second, size, size});
      }
      break;
    }
  }
}

}  // namespace mlxx::kernels
