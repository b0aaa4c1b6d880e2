#include "mlxx/hub/gguf_repack.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

#include "mlxx/base/error.h"
#include "mlxx/core/host_array.h"
#include "mlxx/hub/gguf_blocks.h"

namespace mlxx::hub {

namespace {

constexpr int kGroup = 32;
// Source bytes between two releases of mapped pages.
constexpr uint64_t kSliceBytes = uint64_t{1} << 20;

// IEEE half to single without a branch for the usual numbers: the exponent is
// rebased by a multiplication, which also handles subnormals.
float half_to_float(uint16_t half) {
  uint32_t magnitude = static_cast<uint32_t>(half & 0x7fff) << 13;
  float value = std::bit_cast<float>(magnitude) * 0x1p112f;
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (magnitude >= 0x0f800000) {  // infinity or NaN
    bits |= 0x7f800000;
  }
  bits |= static_cast<uint32_t>(half & 0x8000) << 16;
  return std::bit_cast<float>(bits);
}

template <typename Block>
float bias_of(const uint8_t* block, float scale) {
  return Block::kZero == 0 ? half_to_float(read_half(block + 2))
                           : Block::kZero * scale;
}

// True if every bias that was finite still is.
template <typename Block, typename Scale>
bool repack_row(
    const uint8_t* source,
    size_t blocks,
    uint32_t* packed,
    Scale* scales,
    Scale* biases) {
  bool fits = true;
  for (size_t i = 0; i < blocks; ++i) {
    Block::pack(source, packed);
    float scale = half_to_float(read_half(source));
    float bias = bias_of<Block>(source, scale);
    scales[i] = static_cast<Scale>(scale);
    biases[i] = static_cast<Scale>(bias);
    if constexpr (std::is_same_v<Scale, mx::float16_t>) {
      fits &= !(std::isinf(static_cast<float>(biases[i])) && !std::isinf(bias));
    }
    source += Block::kBytes;
    packed += Block::kWords;
  }
  return fits;
}

// Source, rows and their order, for both kinds of tensor.
struct Rows {
  const MappedFile& file;
  const GgufTensor& tensor;
  const RowOrder& order;
  ThreadPool& pool;
  int64_t count;
  uint64_t row_bytes;

  const uint8_t* source(int64_t row) const {
    return reinterpret_cast<const uint8_t*>(file.bytes().data()) +
        tensor.offset +
        static_cast<uint64_t>(order.source_row(row)) * row_bytes;
  }

  // Calls work(row) for all rows, each thread over its own part, and gives
  // the pages back as it goes. Rows of one head are read out of order, so a
  // part and a slice hold whole heads.
  template <typename Work>
  void for_each(Work&& work) const {
    int64_t unit = std::max<int64_t>(order.head_rows, 1);
    int64_t slice = std::max<int64_t>(kSliceBytes / row_bytes / unit, 1) * unit;
    auto run = [&](int64_t begin, int64_t end) {
      for (int64_t from = begin; from < end; from += slice) {
        int64_t to = std::min(from + slice, end);
        for (int64_t row = from; row < to; ++row) {
          work(row);
        }
        file.release(
            tensor.offset + static_cast<uint64_t>(from) * row_bytes,
            static_cast<uint64_t>(to - from) * row_bytes);
      }
    };
    if (tensor.nbytes < kSliceBytes / 4) {
      run(0, count);
      return;
    }
    pool.run([&](int thread) {
      auto part = pool.split(static_cast<size_t>(count / unit), thread);
      run(static_cast<int64_t>(part.begin) * unit,
          static_cast<int64_t>(part.end) * unit);
    });
  }
};

template <typename Block, typename Scale>
bool repack_rows(
    const Rows& rows,
    size_t blocks,
    std::byte* packed,
    std::byte* scales,
    std::byte* biases) {
  std::atomic<bool> fits = true;
  rows.for_each([&](int64_t row) {
    size_t group = static_cast<size_t>(row) * blocks;
    bool row_fits = repack_row<Block>(
        rows.source(row),
        blocks,
        reinterpret_cast<uint32_t*>(packed) + group * Block::kWords,
        reinterpret_cast<Scale*>(scales) + group,
        reinterpret_cast<Scale*>(biases) + group);
    if (!row_fits) {
      fits.store(false, std::memory_order_relaxed);
    }
  });
  return fits;
}

template <typename Block>
bool repack_rows_as(
    mx::Dtype scale_dtype,
    const Rows& rows,
    size_t blocks,
    std::byte* packed,
    std::byte* scales,
    std::byte* biases) {
  if (scale_dtype == mx::float32) {
    return repack_rows<Block, float>(rows, blocks, packed, scales, biases);
  }
  if (scale_dtype == mx::float16) {
    return repack_rows<Block, mx::float16_t>(
        rows,
        blocks,
        packed,
        scales,
        biases);
  }
  if (scale_dtype == mx::bfloat16) {
    return repack_rows<Block, mx::bfloat16_t>(
        rows,
        blocks,
        packed,
        scales,
        biases);
  }
  fail(
      ErrorKind::invalid_request,
      "repack_gguf",
      "scales must be float32, float16 or bfloat16");
}

mx::Shape mlx_shape(const GgufTensor& tensor, const std::string& place) {
  mx::Shape shape;
  for (int64_t n : tensor.shape) {
    if (n > INT32_MAX) {
      fail(
          ErrorKind::unsupported,
          place,
          "tensor '{}' has an axis of {}, the limit is {}",
          tensor.name,
          n,
          INT32_MAX);
    }
    shape.push_back(static_cast<int32_t>(n));
  }
  return shape;
}

Weight copy_numbers(const Rows& rows, const mx::Shape& shape) {
  mx::Dtype dtype = mx::float32;
  if (rows.tensor.type->id == kGgufF16) {
    dtype = mx::float16;
  } else if (rows.tensor.type->id == kGgufBF16) {
    dtype = mx::bfloat16;
  }
  HostArray out = make_host_array(shape, dtype);
  rows.for_each([&](int64_t row) {
    std::memcpy(
        out.data + static_cast<uint64_t>(row) * rows.row_bytes,
        rows.source(row),
        rows.row_bytes);
  });
  return {out.array, std::nullopt, std::nullopt};
}

}  // namespace

std::optional<Quantization> gguf_quantization(
    const GgufTensor& tensor,
    const std::string& place) {
  switch (tensor.type->id) {
    case kGgufF32:
    case kGgufF16:
    case kGgufBF16:
      return std::nullopt;
    case kGgufQ4_0:
    case kGgufQ4_1:
      return Quantization{kGroup, 4, "affine"};
    case kGgufQ8_0:
      return Quantization{kGroup, 8, "affine"};
    default:
      fail(
          ErrorKind::unsupported,
          place,
          "tensor '{}' is stored as {}; Q4_0, Q4_1, Q8_0, F16, BF16 and F32 "
          "can be loaded",
          tensor.name,
          tensor.type->name);
  }
}

Weight repack_gguf(
    const MappedFile& file,
    const GgufTensor& tensor,
    const RowOrder& order,
    mx::Dtype scale_dtype,
    ThreadPool& pool) {
  std::string place = file.path().string();
  auto quantization = gguf_quantization(tensor, place);
  mx::Shape shape = mlx_shape(tensor, place);
  // A vector is one row, unless its numbers are put in order as rows are.
  bool is_vector = shape.size() == 1;
  int64_t columns = is_vector && order.head_rows > 0 ? 1 : shape.back();
  int64_t count = 1;
  for (int64_t n : tensor.shape) {
    count *= n;
  }
  count /= columns;
  file.check_size();
  Rows rows{
      .file = file,
      .tensor = tensor,
      .order = order,
      .pool = pool,
      .count = count,
      .row_bytes = tensor.nbytes / static_cast<uint64_t>(count)};
  if (!quantization) {
    return copy_numbers(rows, shape);
  }
  if (columns % kGroup != 0) {
    fail(
        ErrorKind::bad_file,
        place,
        "tensor '{}' is a quantized vector of {} head parts",
        tensor.name,
        count);
  }
  size_t blocks = static_cast<size_t>(columns / kGroup);
  mx::Shape packed_shape = shape;
  packed_shape.back() = static_cast<int32_t>(columns * quantization->bits / 32);
  mx::Shape group_shape = shape;
  group_shape.back() = static_cast<int32_t>(blocks);
  HostArray packed = make_host_array(packed_shape, mx::uint32);
  HostArray scales = make_host_array(group_shape, scale_dtype);
  HostArray biases = make_host_array(group_shape, scale_dtype);
  auto* repack = tensor.type->id == kGgufQ4_0 ? repack_rows_as<BlockQ4_0>
      : tensor.type->id == kGgufQ4_1          ? repack_rows_as<BlockQ4_1>
                                              : repack_rows_as<BlockQ8_0>;
  if (!repack(
          scale_dtype,
          rows,
          blocks,
          packed.data,
          scales.data,
          biases.data)) {
    fail(
        ErrorKind::unsupported,
        place,
        "tensor '{}' has scales that are too large for float16; load it with "
        "float32 or bfloat16",
        tensor.name);
  }
  return {packed.array, scales.array, biases.array};
}

}  // namespace mlxx::hub
