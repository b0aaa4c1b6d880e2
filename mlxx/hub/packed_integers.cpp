#include "mlxx/hub/packed_integers.h"

#include <algorithm>

#include "mlxx/base/error.h"
#include "mlxx/core/host_array.h"

namespace mlxx::hub {

int PackedIntegers::mlx_group(const std::string& place) const {
  constexpr int kBits[] = {2, 3, 4, 5, 6, 8};
  for (int size : {128, 64, 32}) {
    if (group % size == 0 && in % size == 0 &&
        std::ranges::find(kBits, bits) != std::end(kBits)) {
      return size;
    }
  }
  fail(
      ErrorKind::unsupported,
      place,
      "'{}' has {} bits in groups of {}; groups must be a multiple of 32",
      module,
      bits,
      group);
}

Derivation PackedIntegers::derivation(
    const std::string& stored,
    const std::string& place,
    std::function<Weight(std::span<const Weight>, const LoadDtype&)> compute)
    const {
  return {
      .shape = {out, in},
      .quantization = Quantization{mlx_group(place), bits, "affine"},
      .stored = stored,
      .compute = std::move(compute)};
}

Weight make_affine(
    const PackedIntegers& matrix,
    int mlx_group,
    const mx::array& words,
    const mx::array& scales,
    const mx::array& zeros,
    const LoadDtype& dtype) {
  mx::array exact = mx::astype(scales, mx::float32);
  mx::array biases = mx::negative(mx::multiply(zeros, exact));
  biases = mx::broadcast_to(biases, exact.shape());
  mx::Dtype wanted = dtype.scales == mx::float32 ? mx::float32 : scales.dtype();
  auto finish = [&](const mx::array& a) {
    mx::array all = mx::astype(a, wanted);
    auto times = static_cast<int>(matrix.group / mlx_group);
    return times > 1 ? mx::repeat(all, times, 1) : all;
  };
  return {words, finish(exact), finish(biases)};
}

mx::array unpack_rows(const mx::array& words, int64_t count, int bits) {
  mx::array source = mx::contiguous(words, false);
  source.eval();
  auto rows = source.shape(0);
  auto row_words = static_cast<size_t>(source.shape(1));
  HostArray out = make_host_array({rows, static_cast<int>(count)}, mx::float32);
  const auto* from = source.data<uint32_t>();
  auto* to = reinterpret_cast<float*>(out.data);
  uint32_t mask = (uint32_t{1} << bits) - 1;
  for (int row = 0; row < rows; ++row, from += row_words) {
    uint64_t stream = 0;
    int filled = 0;
    size_t next = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (filled < bits) {
        stream |= static_cast<uint64_t>(from[next++]) << filled;
        filled += 32;
      }
      *to++ = static_cast<float>(stream & mask);
      stream >>= bits;
      filled -= bits;
    }
  }
  return out.array;
}

bool is_in_order(const mx::array& indices, int64_t group) {
  mx::array all = mx::astype(mx::contiguous(indices, false), mx::int32);
  all.eval();
  const auto* at = all.data<int32_t>();
  std::span<const int32_t> numbers(at, all.size());
  if (std::ranges::all_of(numbers, [](int32_t n) { return n == -1; })) {
    return true;
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] != static_cast<int64_t>(i) / group) {
      return false;
    }
  }
  return true;
}

}  // namespace mlxx::hub
