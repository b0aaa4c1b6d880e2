#include "mlxx/kernels/quantized_matmul/prepared_rows.h"

#include <algorithm>

namespace mlxx::kernels {
namespace {

template <typename T>
void at_least(std::vector<T>& v, int64_t size) {
  if (v.size() < static_cast<size_t>(size)) {
    v.resize(size);
  }
}

}  // namespace

void PreparedRows::Needs::add(
    const PanelLayout& layout,
    const ProductKernels& kernels) {
  if (kernels.form_for(layout) == ActivationForm::float32) {
    floats_ = true;
    sums_ = sums_ || !layout.is_dense();
  } else if (layout.is_dense()) {
    rounded_ = true;
  } else {
    bytes_[static_cast<int>(byte_order(layout))] = true;
  }
}

void PreparedRows::start(int64_t rows, int64_t in, const Needs& needs) {
  needs_ = needs;
  rows_ = rows;
  in_ = in;
  int64_t chunks = in / kChunk;
  if (needs.floats_) {
    at_least(floats_.numbers, rows * in);
    at_least(floats_.sums, rows * chunks);
  }
  if (needs.rounded_) {
    at_least(rounded_, rows * in);
  }
  for (int order = 0; order < 2; ++order) {
    if (needs.bytes_[order]) {
      Slot& slot = bytes_[order];
      at_least(slot.high, rows * in);
      if (kernels_.form == ActivationForm::int16) {
        at_least(slot.low, rows * in);
      }
      at_least(slot.scales, rows * chunks);
      at_least(slot.sums, rows * chunks);
      at_least(slot.byte_sums, 2 * rows * chunks);
    }
  }
}

void PreparedRows::prepare(int64_t row, const float* x) {
  int64_t chunks = in_ / kChunk;
  if (needs_.floats_) {
    std::copy_n(x, in_, floats_.numbers.data() + row * in_);
  }
  if (needs_.sums_) {
    kernels_.floats->chunk_sums(x, chunks, floats_.sums.data() + row * chunks);
  }
  if (needs_.rounded_) {
    kernels_.dense->round_row(x, in_, rounded_.data() + row * in_);
  }
  for (int order = 0; order < 2; ++order) {
    if (needs_.bytes_[order]) {
      Slot& slot = bytes_[order];
      bool two = kernels_.form == ActivationForm::int16;
      kernels_.bytes->quantize_row(
          x,
          chunks,
          static_cast<ByteOrder>(order),
          slot.high.data() + row * in_,
          two ? slot.low.data() + row * in_ : nullptr,
          slot.scales.data() + row * chunks,
          slot.sums.data() + row * chunks,
          slot.byte_sums.data() + 2 * row * chunks);
    }
  }
}

ActivationRows PreparedRows::view(const PanelLayout& layout) const {
  ActivationForm form = kernels_.form_for(layout);
  ActivationRows view{};
  view.form = form;
  view.rows = rows_;
  view.in = in_;
  if (form == ActivationForm::float32) {
    view.numbers = floats_.numbers.data();
    view.sums = floats_.sums.data();
    return view;
  }
  if (layout.is_dense()) {
    view.rounded = rounded_.data();
    return view;
  }
  const Slot& slot = bytes_[static_cast<int>(byte_order(layout))];
  view.high = slot.high.data();
  view.low = form == ActivationForm::int16 ? slot.low.data() : nullptr;
  view.scales = slot.scales.data();
  view.sums = slot.sums.data();
  view.byte_sums = slot.byte_sums.data();
  return view;
}

}  // namespace mlxx::kernels
