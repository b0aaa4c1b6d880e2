#include "mlxx/hub/gguf_repack.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "mlxx/base/error.h"
#include "mlxx/core/host_array.h"
#include "mlxx/hub/gguf_blocks.h"
#include "mlxx/hub/gguf_dense_blocks.h"
#include "mlxx/hub/gguf_k_blocks.h"

namespace mlxx::hub {

namespace {

// Source bytes between two releases of mapped pages.
constexpr uint64_t kSliceBytes = uint64_t{1} << 20;

// True if every number that was finite still is.
template <typename Block, typename Scale>
bool repack_row(
    const uint8_t* source,
    size_t blocks,
    uint32_t* packed,
    Scale* scales,
    Scale* biases) {
  constexpr int kGroups = Block::kElements / Block::kGroup;
  bool fits = true;
  for (size_t i = 0; i < blocks; ++i) {
    Block::pack(source, packed);
    float scale[kGroups], bias[kGroups];
    Block::numbers(source, scale, bias);
    for (int group = 0; group < kGroups; ++group) {
      *scales = static_cast<Scale>(scale[group]);
      *biases = static_cast<Scale>(bias[group]);
      if constexpr (std::is_same_v<Scale, mx::float16_t>) {
        auto overflows = [](float before, Scale after) {
          return std::isinf(static_cast<float>(after)) && !std::isinf(before);
        };
        fits &= !overflows(scale[group], *scales) &&
            !overflows(bias[group], *biases);
      }
      ++scales;
      ++biases;
    }
    source += Block::kBytes;
    packed += Block::kElements * Block::kBits / 32;
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

// Where the parts of a quantized tensor go.
struct Target {
  std::byte* packed;
  std::byte* scales;
  std::byte* biases;
  mx::Dtype dtype;  // of scales and biases
};

template <typename Block, typename Scale>
bool repack_rows_to(const Rows& rows, size_t blocks, const Target& to) {
  constexpr size_t kWords = Block::kElements * Block::kBits / 32;
  constexpr size_t kGroups = Block::kElements / Block::kGroup;
  std::atomic<bool> fits = true;
  rows.for_each([&](int64_t row) {
    size_t first = static_cast<size_t>(row) * blocks;
    bool row_fits = repack_row<Block>(
        rows.source(row),
        blocks,
        reinterpret_cast<uint32_t*>(to.packed) + first * kWords,
        reinterpret_cast<Scale*>(to.scales) + first * kGroups,
        reinterpret_cast<Scale*>(to.biases) + first * kGroups);
    if (!row_fits) {
      fits.store(false, std::memory_order_relaxed);
    }
  });
  return fits;
}

template <typename Block>
bool repack_rows(const Rows& rows, size_t blocks, const Target& to) {
  if (to.dtype == mx::float32) {
    return repack_rows_to<Block, float>(rows, blocks, to);
  }
  if (to.dtype == mx::float16) {
    return repack_rows_to<Block, mx::float16_t>(rows, blocks, to);
  }
  if (to.dtype == mx::bfloat16) {
    return repack_rows_to<Block, mx::bfloat16_t>(rows, blocks, to);
  }
  fail(
      ErrorKind::invalid_request,
      "repack_gguf",
      "scales must be float32, float16 or bfloat16");
}

// The microscaled type: a byte of exponent, then nibbles.
bool repack_mxfp4_rows(const Rows& rows, size_t blocks, const Target& to) {
  constexpr size_t kBytes = 17;
  rows.for_each([&](int64_t row) {
    const uint8_t* source = rows.source(row);
    size_t first = static_cast<size_t>(row) * blocks;
    for (size_t i = first; i < first + blocks; ++i, source += kBytes) {
      to.scales[i] = static_cast<std::byte>(source[0]);
      repack_nibbles(
          source + 1,
          reinterpret_cast<uint32_t*>(to.packed) + 4 * i);
    }
  });
  return true;
}

template <typename Block>
void dequantize_rows(const Rows& rows, size_t blocks, float* out) {
  rows.for_each([&](int64_t row) {
    const uint8_t* source = rows.source(row);
    size_t first = static_cast<size_t>(row) * blocks;
    for (size_t i = first; i < first + blocks; ++i, source += Block::kBytes) {
      Block::dequantize(source, out + i * kSuperBlock);
    }
  });
}

// What becomes of a type.
struct Form {
  uint32_t type;
  int group = 0;  // 0: not quantized in MLX
  int bits = 0;
  bool (*repack)(const Rows&, size_t blocks, const Target&) = nullptr;
  void (*dequantize)(const Rows&, size_t blocks, float*) = nullptr;
};

template <typename Block>
constexpr Form affine(uint32_t type) {
  return {
      .type = type,
      .group = Block::kGroup,
      .bits = Block::kBits,
      .repack = repack_rows<Block>};
}

template <typename Block>
constexpr Form dense(uint32_t type) {
  return {.type = type, .dequantize = dequantize_rows<Block>};
}

constexpr Form kForms[] = {
    {.type = kGgufF32},
    {.type = kGgufF16},
    {.type = kGgufBF16},
    affine<BlockQ4_0>(kGgufQ4_0),
    affine<BlockQ4_1>(kGgufQ4_1),
    affine<BlockQ5_0>(kGgufQ5_0),
    affine<BlockQ5_1>(kGgufQ5_1),
    affine<BlockQ8_0>(kGgufQ8_0),
    dense<BlockQ2K>(kGgufQ2K),
    affine<BlockQ3K>(kGgufQ3K),
    affine<BlockQ4K>(kGgufQ4K),
    affine<BlockQ5K>(kGgufQ5K),
    dense<BlockQ6K>(kGgufQ6K),
    affine<BlockIq4Nl>(kGgufIq4Nl),
    affine<BlockIq4Xs>(kGgufIq4Xs),
    {.type = kGgufMxfp4, .group = 32, .bits = 4, .repack = repack_mxfp4_rows},
};

const Form& form_of(const GgufTensor& tensor, const std::string& place) {
  auto form = std::ranges::find(kForms, tensor.type->id, &Form::type);
  if (form == std::end(kForms)) {
    std::vector<std::string_view> known;
    for (const auto& f : kForms) {
      known.push_back(find_gguf_type(f.type)->name);
    }
    fail(
        ErrorKind::unsupported,
        place,
        "tensor '{}' is stored as {}; known are {}",
        tensor.name,
        tensor.type->name,
        fmt::join(known, ", "));
  }
  return *form;
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
  const Form& form = form_of(tensor, place);
  if (form.group == 0) {
    return std::nullopt;
  }
  bool is_affine = tensor.type->id != kGgufMxfp4;
  return Quantization{form.group, form.bits, is_affine ? "affine" : "mxfp4"};
}

std::string gguf_loads_as(const GgufTensor& tensor) {
  auto form = std::ranges::find(kForms, tensor.type->id, &Form::type);
  return form != std::end(kForms) && form->dequantize ? "F32" : "";
}

Weight repack_gguf(
    const MappedFile& file,
    const GgufTensor& tensor,
    const RowOrder& order,
    mx::Dtype scale_dtype,
    ThreadPool& pool) {
  std::string place = file.path().string();
  const Form& form = form_of(tensor, place);
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
  if (!form.repack && !form.dequantize) {
    return copy_numbers(rows, shape);
  }
  if (columns % tensor.type->block != 0) {
    fail(
        ErrorKind::bad_file,
        place,
        "tensor '{}' is a quantized vector of {} head parts",
        tensor.name,
        count);
  }
  size_t blocks = static_cast<size_t>(columns) / tensor.type->block;
  if (form.dequantize) {
    HostArray out = make_host_array(shape, mx::float32);
    form.dequantize(rows, blocks, reinterpret_cast<float*>(out.data));
    return {out.array, std::nullopt, std::nullopt};
  }
  mx::Shape packed_shape = shape;
  packed_shape.back() = static_cast<int32_t>(columns * form.bits / 32);
  mx::Shape group_shape = shape;
  group_shape.back() = static_cast<int32_t>(columns / form.group);
  bool is_affine = tensor.type->id != kGgufMxfp4;
  HostArray packed = make_host_array(packed_shape, mx::uint32);
  HostArray scales =
      make_host_array(group_shape, is_affine ? scale_dtype : mx::uint8);
  std::optional<HostArray> biases;
  if (is_affine) {
    biases = make_host_array(group_shape, scale_dtype);
  }
  Target target{
      packed.data,
      scales.data,
      biases ? biases->data : nullptr,
      scale_dtype};
  if (!form.repack(rows, blocks, target)) {
    fail(
        ErrorKind::unsupported,
        place,
        "tensor '{}' has scales that are too large for float16; load it with "
        "float32 or bfloat16",
        tensor.name);
  }
  return {
      packed.array,
      scales.array,
      biases ? std::optional(biases->array) : std::nullopt};
}

}  // namespace mlxx::hub
