#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "mlxx/kernels/quantized_matmul/floating_format.h"
#include "mlxx/kernels/quantized_matmul/packed_panels.h"

namespace mlxx::kernels {
namespace {

// Whether `holds` is true of all numbers below `count`. Blocks without a branch
// inside are computed many at a time.
template <typename Holds>
bool holds_for_all(size_t count, const Holds& holds) {
  constexpr size_t kBlock = 1024;
  for (size_t start = 0; start < count; start += kBlock) {
    size_t end = std::min(count, start + kBlock);
    bool all = true;
    for (size_t i = start; i < end; ++i) {
      all &= holds(i);
    }
    if (!all) {
      return false;
    }
  }
  return true;
}

// Normal numbers and zero by their bits alone, since converting each takes
// longer than packing the matrix.
bool is_plain_half(float value) {
  auto bits = std::bit_cast<uint32_t>(value);
  uint32_t size = bits & 0x7fffffffu;
  // From 2^-14 to below 2^16, ten bits of mantissa.
  bool in_range = size - 0x38800000u < 0x47800000u - 0x38800000u;
  return (size == 0) | (in_range & ((bits & 0x1fffu) == 0));
}

bool survives(std::span<const float> values, NumberType type) {
  const float* v = values.data();
  if (type == NumberType::float16) {
    return holds_for_all(
               values.size(),
               [=](size_t i) { return is_plain_half(v[i]); }) ||
        std::ranges::all_of(values, [](float value) {
             return is_plain_half(value) ||
                 static_cast<float>(mx::float16_t(value)) == value;
           });
  }
  return holds_for_all(values.size(), [=](size_t i) {
    bool is_number = v[i] == v[i];
    return is_number & ((std::bit_cast<uint32_t>(v[i]) & 0xffffu) == 0);
  });
}

void store_number(std::byte* at, NumberType type, int lane, float value) {
  if (type == NumberType::float32) {
    std::memcpy(at + lane * 4, &value, 4);
  } else if (type == NumberType::float16) {
    mx::float16_t half(value);
    std::memcpy(at + lane * 2, &half, 2);
  } else {
    mx::bfloat16_t half(value);
    std::memcpy(at + lane * 2, &half, 2);
  }
}

float e4m3_value(uint8_t bits) {
  int exponent = (bits >> 3) & 15;
  int mantissa = bits & 7;
  float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                             : std::ldexp(8.0f + mantissa, exponent - 10);
  if ((bits & 0x7f) == 0x7f) {
    size = std::numeric_limits<float>::quiet_NaN();
  }
  return bits & 0x80 ? -size : size;
}

float e2m1_value(uint32_t bits) {
  constexpr float kSizes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return bits & 8 ? -kSizes[bits & 7] : kSizes[bits & 7];
}

float code_value(Codes codes, uint32_t code) {
  switch (codes) {
    case Codes::integers:
      break;
    case Codes::e2m1:
      return e2m1_value(code);
    case Codes::e4m3:
      return e4m3_value(static_cast<uint8_t>(code));
  }
  return static_cast<float>(code);
}

float read_number(const std::byte* at, NumberType type, int lane) {
  if (type == NumberType::e4m3) {
    return e4m3_value(std::to_integer<uint8_t>(at[lane]));
  }
  if (type == NumberType::e8m0) {
    return std::ldexp(1.0f, std::to_integer<int>(at[lane]) - 127);
  }
  if (type == NumberType::float32) {
    float value;
    std::memcpy(&value, at + lane * 4, 4);
    return value;
  }
  if (type == NumberType::float16) {
    mx::float16_t half;
    std::memcpy(&half, at + lane * 2, 2);
    return static_cast<float>(half);
  }
  mx::bfloat16_t half;
  std::memcpy(&half, at + lane * 2, 2);
  return static_cast<float>(half);
}

// mx::contiguous() copies what lies in a mapped file, because it asks MLX's
// allocator how large that memory is.
mx::array row_contiguous(mx::array a) {
  mx::eval(a);
  if (!a.flags().row_contiguous) {
    a = mx::contiguous(a);
    mx::eval(a);
  }
  return a;
}

mx::array contiguous_float32(const mx::array& a) {
  return row_contiguous(mx::astype(a, mx::float32));
}

NumberType number_type(mx::Dtype dtype) {
  return dtype == mx::float16 ? NumberType::float16
      : dtype == mx::bfloat16 ? NumberType::bfloat16
                              : NumberType::float32;
}

std::shared_ptr<ThreadPool> threads_of(const Selection& selection) {
  return selection.threads ? selection.threads
                           : std::make_shared<ThreadPool>(1);
}

}  // namespace

// Packed words in rows, with float32 scales and biases, or of floating-point
// codes the scales' bytes and any biases.
struct PanelMatrix::Source {
  mx::array words;
  mx::array scales;
  mx::array biases;
  int64_t words_per_row;
  int64_t groups;  // of the layout

  std::span<const float> all_scales() const {
    return {scales.data<float>(), scales.size()};
  }
  std::span<const float> all_biases() const {
    return {biases.data<float>(), biases.size()};
  }
};

bool PanelMatrix::can_pack(
    const WeightArrays& arrays,
    const QuantizationSpec& quantization) {
  if (auto format = floating_format(quantization)) {
    return arrays.scales && arrays.scales->dtype() == mx::uint8 &&
        arrays.weight.ndim() == 2 &&
        arrays.weight.shape(1) % format->words_per_chunk == 0;
  }
  constexpr int kBits[] = {2, 3, 4, 5, 6, 8};
  return quantization.mode == "affine" && arrays.scales && arrays.biases &&
      std::ranges::find(kBits, quantization.bits) != std::end(kBits) &&
      quantization.group_size % kChunk == 0 && arrays.weight.ndim() == 2;
}

PanelMatrix::PanelMatrix(
    const WeightArrays& arrays,
    const QuantizationSpec& quantization,
    const Selection& selection)
    : layout_{},
      out_(arrays.weight.shape(0)),
      kernels_(product_kernels(selection)),
      gemm_machine_(gemm_machine(selection)),
      threads_(threads_of(selection)) {
  mx::array words = row_contiguous(arrays.weight);
  layout_.bits = quantization.bits;
  layout_.group_size = quantization.group_size;
  layout_.in = int64_t{words.shape(1)} * 32 / quantization.bits;
  if (auto format = floating_format(quantization)) {
    layout_.group_size = kChunk;
    layout_.type = format->scales;
    layout_.symmetric = true;
    layout_.codes = format->codes;
    layout_.half_groups = format->half_groups;
    mx::array scales = row_contiguous(*arrays.scales);
    Source source{
        words,
        scales,
        scales,
        words.shape(1),
        layout_.in / layout_.group_size};
    allocate(selection.memory.get());
    on_panels([&](int64_t index) { fill_panel(source, index); });
    return;
  }
  Source source{
      words,
      contiguous_float32(*arrays.scales),
      contiguous_float32(*arrays.biases),
      words.shape(1),
      layout_.in / layout_.group_size};
  choose_scales(source);

  allocate(selection.memory.get());
  on_panels([&](int64_t index) { fill_panel(source, index); });
}

bool PanelMatrix::can_pack(const mx::array& dense) {
  return dense.ndim() == 2 && dense.shape(1) % kChunk == 0 &&
      dense.size() > 0 &&
      (dense.dtype() == mx::float32 || dense.dtype() == mx::float16 ||
       dense.dtype() == mx::bfloat16);
}

PanelMatrix::PanelMatrix(const mx::array& dense, const Selection& selection)
    : layout_{},
      out_(dense.shape(0)),
      kernels_(product_kernels(selection)),
      gemm_machine_(gemm_machine(selection)),
      threads_(threads_of(selection)) {
  mx::array numbers = row_contiguous(dense);
  layout_.in = dense.shape(1);
  layout_.group_size = kChunk;
  layout_.type = number_type(dense.dtype());
  allocate(selection.memory.get());
  const auto* from = numbers.data<char>();
  on_panels([&](int64_t index) { fill_dense_panel(from, index); });
}

void PanelMatrix::allocate(PanelMemory* memory) {
  size_ = panels() * layout_.panel_bytes();
  data_ = memory ? memory->take(size_) : take_panel_memory(size_);
}

void PanelMatrix::on_panels(const std::function<void(int64_t)>& work) const {
  threads_->run([&](int thread) {
    auto range = threads_->split(panels(), thread);
    for (size_t i = range.begin; i < range.end; ++i) {
      work(static_cast<int64_t>(i));
    }
  });
}

namespace {

// One lane's words, 32 lanes apart.
template <size_t kBytes>
void scatter_words(const char* from, int64_t count, std::byte* to) {
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * kLanes * kBytes, from + i * kBytes, kBytes);
  }
}

}  // namespace

void PanelMatrix::fill_dense_panel(const char* numbers, int64_t index) {
  std::byte* start = panel(index);
  std::memset(start, 0, layout_.panel_bytes());
  size_t bytes = layout_.number_bytes();
  int64_t lanes = std::min<int64_t>(kLanes, out_ - index * kLanes);
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const char* row = numbers + (index * kLanes + lane) * layout_.in * bytes;
    if (layout_.type == NumberType::float16) {
      scatter_words<2>(row, layout_.in, start + 2 * lane);
    } else {
      // Numbers of float32, pairs of bfloat16.
      int64_t words = layout_.in * static_cast<int64_t>(bytes) / 4;
      scatter_words<4>(row, words, start + 4 * lane);
    }
  }
}

// The smallest form that loses nothing.
void PanelMatrix::choose_scales(const Source& source) {
  auto scales = source.all_scales();
  auto biases = source.all_biases();
  layout_.zero = -static_cast<float>(1 << (layout_.bits - 1));
  const float* scale = scales.data();
  const float* bias = biases.data();
  float zero = layout_.zero;
  layout_.symmetric = holds_for_all(scales.size(), [=](size_t i) {
    return bias[i] == scale[i] * zero;
  });
  layout_.type = NumberType::float32;
  for (NumberType type : {NumberType::float16, NumberType::bfloat16}) {
    if (survives(scales, type) &&
        (layout_.symmetric || survives(biases, type))) {
      layout_.type = type;
      return;
    }
  }
}

void PanelMatrix::fill_panel(const Source& source, int64_t index) {
  std::byte* start = panel(index);
  // Lanes past the last output hold zeros.
  std::memset(start, 0, layout_.panel_bytes());
  int lanes =
      static_cast<int>(std::min<int64_t>(kLanes, out_ - index * kLanes));
  int64_t words_per_group = int64_t{layout_.chunks_per_group()} * layout_.bits;
  for (int lane = 0; lane < lanes; ++lane) {
    int64_t row = index * kLanes + lane;
    const float* scales = source.scales.data<float>() + row * source.groups;
    const float* biases = source.biases.data<float>() + row * source.groups;
    int halves = layout_.half_groups ? 2 : 1;
    const uint8_t* scale_bytes =
        source.scales.data<uint8_t>() + row * source.groups * halves;
    const uint32_t* words =
        source.words.data<uint32_t>() + row * source.words_per_row;
    for (int64_t group = 0; group < source.groups; ++group) {
      std::byte* at = start + group * layout_.group_bytes();
      if (layout_.codes != Codes::integers) {
        for (int half = 0; half < halves; ++half) {
          at[half * kLanes + lane] =
              std::byte{scale_bytes[group * halves + half]};
        }
      } else {
        store_number(at, layout_.type, lane, scales[group]);
      }
      if (!layout_.symmetric) {
        store_number(
            at + kLanes * layout_.number_bytes(),
            layout_.type,
            lane,
            biases[group]);
      }
      auto* target =
          reinterpret_cast<uint32_t*>(at + layout_.header_bytes()) + lane;
      for (int64_t w = 0; w < words_per_group; ++w) {
        target[w * kLanes] = words[group * words_per_group + w];
      }
    }
  }
}

namespace {

// Number `index` of a lane's chunk.
uint32_t quantized_number(const uint32_t* words, int bits, int index) {
  int first = index * bits;
  int word = first / 32;
  int shift = first % 32;
  uint32_t value = words[word * kLanes] >> shift;
  if (shift + bits > 32) {
    value |= words[(word + 1) * kLanes] << (32 - shift);
  }
  return value & ((1u << bits) - 1);
}

}  // namespace

void PanelMatrix::copy_row(int64_t index, float* y) const {
  if (index < 0 || index >= out_) {
    std::fill_n(y, layout_.in, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  int lane = static_cast<int>(index % kLanes);
  const std::byte* at = panel(index / kLanes);
  if (layout_.is_dense()) {
    for (int64_t i = 0; i < layout_.in; ++i) {
      y[i] = read_number(at + layout_.dense_offset(i, lane), layout_.type, 0);
    }
    return;
  }
  for (int64_t done = 0; done < layout_.in; done += layout_.group_size) {
    float scale = read_number(at, layout_.type, lane);
    float bias = layout_.codes != Codes::integers ? 0.0f
        : layout_.symmetric
        ? scale * layout_.zero
        : read_number(at + kLanes * layout_.number_bytes(), layout_.type, lane);
    const auto* words =
        reinterpret_cast<const uint32_t*>(at + layout_.header_bytes()) + lane;
    for (int i = 0; i < layout_.group_size; ++i) {
      uint32_t q = quantized_number(
          words + (i / kChunk) * layout_.bits * kLanes,
          layout_.bits,
          i % kChunk);
      float s = layout_.half_groups && i >= kChunk / 2
          ? read_number(at + kLanes, layout_.type, lane)
          : scale;
      y[done + i] = code_value(layout_.codes, q) * s + bias;
    }
    at += layout_.group_bytes();
  }
}

mx::array PanelMatrix::dequantize() const {
  std::vector<float> numbers(out_ * layout_.in);
  for (int64_t row = 0; row < out_; ++row) {
    copy_row(row, numbers.data() + row * layout_.in);
  }
  return mx::array(
      numbers.data(),
      {out_, static_cast<int>(layout_.in)},
      mx::float32);
}

WeightArrays PanelMatrix::restore_dense() const {
  mx::Dtype dtype = layout_.type == NumberType::float16 ? mx::float16
      : layout_.type == NumberType::bfloat16            ? mx::bfloat16
                                                        : mx::float32;
  return {mx::astype(dequantize(), dtype), std::nullopt, std::nullopt};
}

WeightArrays PanelMatrix::restore() const {
  if (layout_.is_dense()) {
    return restore_dense();
  }
  int64_t words_per_group = int64_t{layout_.chunks_per_group()} * layout_.bits;
  int groups = static_cast<int>(layout_.in / layout_.group_size);
  std::vector<uint32_t> words(out_ * groups * words_per_group);
  std::vector<float> scales(static_cast<size_t>(out_) * groups);
  std::vector<float> biases(scales.size());
  int halves = layout_.half_groups ? 2 : 1;
  std::vector<uint8_t> scale_bytes(scales.size() * halves);
  for (int64_t row = 0; row < out_; ++row) {
    int lane = static_cast<int>(row % kLanes);
    for (int group = 0; group < groups; ++group) {
      const std::byte* at = panel(row / kLanes) + group * layout_.group_bytes();
      size_t index = row * groups + group;
      for (int half = 0; half < halves; ++half) {
        scale_bytes[index * halves + half] =
            std::to_integer<uint8_t>(at[half * kLanes + lane]);
      }
      scales[index] = read_number(at, layout_.type, lane);
      biases[index] = layout_.symmetric
          ? scales[index] * layout_.zero
          : read_number(
                at + kLanes * layout_.number_bytes(),
                layout_.type,
                lane);
      const auto* from =
          reinterpret_cast<const uint32_t*>(at + layout_.header_bytes()) + lane;
      for (int64_t w = 0; w < words_per_group; ++w) {
        words[index * words_per_group + w] = from[w * kLanes];
      }
    }
  }
  int columns = static_cast<int>(groups * words_per_group);
  if (layout_.codes != Codes::integers) {
    return {
        mx::array(words.data(), {out_, columns}, mx::uint32),
        mx::array(scale_bytes.data(), {out_, groups * halves}, mx::uint8),
        std::nullopt};
  }
  return {
      mx::array(words.data(), {out_, columns}, mx::uint32),
      mx::array(scales.data(), {out_, groups}, mx::float32),
      mx::array(biases.data(), {out_, groups}, mx::float32)};
}

}  // namespace mlxx::kernels
