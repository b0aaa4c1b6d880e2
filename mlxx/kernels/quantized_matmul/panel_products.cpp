#include <algorithm>

#include "mlxx/kernels/cpu_variants.h"
#include "mlxx/kernels/quantized_matmul/packed_panels.h"

namespace mlxx::kernels {
namespace {

// Chunks of a panel unpacked to float32 at a time: 128 KiB, which a core's own
// cache holds; with few rows 32 KiB, which the nearest one does.
constexpr int64_t kFloatChunks = 32;
constexpr int64_t kFewRowsChunks = 8;
constexpr int64_t kFewRows = 64;

template <typename T>
T* room(std::vector<T>& v, int64_t size) {
  if (v.size() < static_cast<size_t>(size)) {
    v.resize(size);
  }
  return v.data();
}

}  // namespace

ProductKernels product_kernels(const Selection& selection) {
  const DenseKernels& dense = dense_kernels(selection.instruction_set);
  return {
      &panel_kernels(selection.instruction_set),
      &byte_kernels(selection.instruction_set),
      &dense,
      selection.activations,
      selection.activations == ActivationForm::int8 && dense.round_row};
}

void PanelMatrix::multiply_floats(
    int64_t index,
    const ActivationRows& a,
    PanelScratch& scratch,
    float* tile) const {
  if (a.rows == 1) {
    kernels_.floats->one_row(layout_, panel(index), a.numbers, a.sums, tile);
    return;
  }
  int64_t chunks = layout_.chunks();
  float* q = room(scratch.numbers, kFloatChunks * kChunk * kLanes);
  float* scales = room(scratch.scales, 2 * kFloatChunks * kLanes);
  float* biases = room(scratch.biases, kFloatChunks * kLanes);
  int64_t step = a.rows < kFewRows ? kFewRowsChunks : kFloatChunks;
  for (int64_t from = 0; from < chunks; from += step) {
    int64_t to = std::min(from + step, chunks);
    kernels_.floats->unpack(layout_, panel(index), from, to, q, scales, biases);
    kernels_.floats->many_rows(
        q,
        scales,
        biases,
        to - from,
        a.numbers + from * kChunk,
        layout_.in,
        a.sums + from,
        chunks,
        a.rows,
        from == 0,
        tile,
        kLanes);
  }
}

void PanelMatrix::multiply_bytes(
    int64_t index,
    const ActivationRows& a,
    PanelScratch& scratch,
    float* tile) const {
  if (a.rows == 1) {
    kernels_.bytes->one_row(layout_, panel(index), a, 0, tile);
    return;
  }
  if (!scratch.bytes) {
    scratch.bytes = std::make_unique_for_overwrite<ByteScratch>();
  }
  kernels_.bytes->many_rows(layout_, panel(index), a, *scratch.bytes, tile);
}

void PanelMatrix::multiply_panel(
    int64_t index,
    const ActivationRows& activations,
    PanelScratch& scratch,
    float* tile) const {
  if (layout_.is_dense()) {
    if (activations.rounded) {
      kernels_.dense->many_rounded_rows(
          layout_,
          panel(index),
          activations.rounded,
          activations.rows,
          tile);
    } else {
      kernels_.dense->many_rows(
          layout_,
          panel(index),
          activations.numbers,
          activations.rows,
          tile);
    }
  } else if (activations.form == ActivationForm::float32) {
    multiply_floats(index, activations, scratch, tile);
  } else {
    multiply_bytes(index, activations, scratch, tile);
  }
}

void PanelMatrix::multiply(const float* x, int64_t rows, float* y) const {
  PreparedRows prepared(kernels_);
  PreparedRows::Needs needs;
  needs.add(layout_, kernels_);
  prepared.start(rows, layout_.in, needs);
  auto prepare = [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      prepared.prepare(row, x + row * layout_.in);
    }
  };
  // Waking the threads costs more than a few rows.
  constexpr int64_t kWorthWaking = 8;
  if (rows < kWorthWaking) {
    prepare(0, rows);
  } else {
    threads_->run([&](int thread) {
      auto range = threads_->split(rows, thread);
      prepare(range.begin, range.end);
    });
  }
  ActivationRows activations = prepared.view(layout_);
  threads_->run([&](int thread) {
    auto range = threads_->split(panels(), thread);
    PanelScratch scratch;
    std::vector<float> tile(rows * kLanes);
    for (size_t p = range.begin; p < range.end; ++p) {
      multiply_panel(p, activations, scratch, tile.data());
      int64_t first = static_cast<int64_t>(p) * kLanes;
      int64_t count = std::min<int64_t>(kLanes, out_ - first);
      for (int64_t row = 0; row < rows; ++row) {
        std::copy_n(tile.data() + row * kLanes, count, y + row * out_ + first);
      }
    }
  });
}

}  // namespace mlxx::kernels
