#include "mlxx/kernels/rope/rope.h"

#include <cmath>
#include <cstring>

#include "mlxx/core/compiled_function.h"
#include "mlxx/kernels/cpu_primitive.h"
#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

constexpr int64_t kManyRows = 64;

// mx::fast::rope, operation by operation as MLX computes it on the CPU, but
// without slices, which MLX cannot have in a shapeless graph.
mx::array rope_by_rows(
    const mx::array& x,
    const RopeAngles& angles,
    const mx::array& first) {
  int half = angles.dims / 2;
  int size = x.shape(3);
  mx::array positions = mx::multiply(
      mx::add(mx::arange(x.shape(2), mx::float32), first),
      mx::array(angles.position_scale, mx::float32));
  mx::array frequencies = angles.wavelengths
      ? mx::reciprocal(mx::astype(*angles.wavelengths, mx::float32))
      : mx::exp(mx::multiply(
            mx::arange(0, -half, -1, mx::float32),
            mx::array(std::log(*angles.base) / half, mx::float32)));
  mx::array theta = mx::multiply(mx::expand_dims(positions, -1), frequencies);
  mx::array cosines = mx::astype(mx::cos(theta), x.dtype());
  mx::array sines = mx::astype(mx::sin(theta), x.dtype());
  auto numbers = [&](int from, int to, int step) {
    return mx::take(x, mx::arange(from, to, step, mx::int32), 3);
  };
  mx::array a =
      angles.traditional ? numbers(0, 2 * half, 2) : numbers(0, half, 1);
  mx::array b =
      angles.traditional ? numbers(1, 2 * half, 2) : numbers(half, 2 * half, 1);
  mx::array turned_a =
      mx::subtract(mx::multiply(a, cosines), mx::multiply(b, sines));
  mx::array turned_b =
      mx::add(mx::multiply(a, sines), mx::multiply(b, cosines));
  mx::array turned = turned_a;
  if (angles.traditional) {
    mx::Shape shape = x.shape();
    shape[3] = 2 * half;
    turned = mx::reshape(
        mx::concatenate(
            {mx::expand_dims(turned_a, -1), mx::expand_dims(turned_b, -1)},
            -1),
        shape);
  } else {
    turned = mx::concatenate({turned_a, turned_b}, -1);
  }
  return size == 2 * half
      ? turned
      : mx::concatenate({turned, numbers(2 * half, size, 1)}, -1);
}

mx::array plain_rope(
    const mx::array& x,
    const RopeAngles& angles,
    const Position& first) {
  if (first.array && is_shapeless_tracing() && x.ndim() == 4 &&
      mx::default_device() == mx::Device::cpu) {
    return rope_by_rows(x, angles, *first.array);
  }
  if (first.array) {
    return mx::fast::rope(
        x,
        angles.dims,
        angles.traditional,
        angles.base,
        angles.position_scale,
        *first.array,
        angles.wavelengths);
  }
  return mx::fast::rope(
      x,
      angles.dims,
      angles.traditional,
      angles.base,
      angles.position_scale,
      first.number,
      angles.wavelengths);
}

// Inputs: x, the wavelengths if they are given, the position if it is an array.
class CpuRope : public CpuPrimitive {
 public:
  CpuRope(
      const RopeAngles& angles,
      const Position& first,
      const Selection& selection)
      : CpuPrimitive(
            "CpuRope",
            [angles, number = first.number, is_array = first.array.has_value()](
                const std::vector<mx::array>& inputs) {
              return std::vector{plain_rope(
                  inputs[0],
                  angles,
                  is_array ? Position(inputs.back()) : Position(number))};
            }),
        half_(angles.dims / 2),
        base_(angles.base),
        position_scale_(angles.position_scale),
        offset_(first.number),
        has_wavelengths_(angles.wavelengths.has_value()),
        has_position_(first.array.has_value()),
        selection_(selection) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    out.set_data(mx::allocator::malloc(out.nbytes()));
    const mx::array& x = inputs[0];
    const float* wavelengths =
        has_wavelengths_ ? inputs[1].data<float>() : nullptr;
    const int32_t* position =
        has_position_ ? inputs.back().data<int32_t>() : nullptr;
    dispatch(
        [from = x.data<float>(),
         strides = x.strides(),
         shape = x.shape(),
         wavelengths,
         y = out.data<float>(),
         half = half_,
         base = base_,
         position_scale = position_scale_,
         number = offset_,
         position,
         positions = has_position_ ? static_cast<int>(inputs.back().size()) : 1,
         selection = selection_] {
          // Of the batch's rows, or of all of them alike.
          std::vector<std::pair<Table, Table>> tables;
          for (int i = 0; i < positions; ++i) {
            tables.push_back(rotations(
                shape[2],
                half,
                base,
                wavelengths,
                position_scale,
                position ? position[i] : number));
          }
          const auto& kernels = row_kernels(selection.instruction_set);
          int64_t size = shape[3];
          int64_t rows = int64_t{shape[0]} * shape[1] * shape[2];
          auto part = [&](size_t begin, size_t end) {
            std::vector<float> copy(strides[3] == 1 ? 0 : size);
            for (size_t row = begin; row < end; ++row) {
              int64_t token = row % shape[2];
              int64_t head = row / shape[2] % shape[1];
              int64_t batch = row / shape[2] / shape[1];
              const auto& [cosines, sines] = tables[positions == 1 ? 0 : batch];
              const float* in = from + batch * strides[0] + head * strides[1] +
                  token * strides[2];
              float* to = y + row * size;
              if (strides[3] != 1) {
                for (int64_t d = 0; d < size; ++d) {
                  copy[d] = in[d * strides[3]];
                }
                in = copy.data();
              }
              kernels.rotate_halves(
                  in,
                  cosines.data() + token * half,
                  sines.data() + token * half,
                  half,
                  to);
              std::memcpy(
                  to + 2 * half,
                  in + 2 * half,
                  (size - 2 * half) * sizeof(float));
            }
          };
          for_each_row_range(selection, rows, kManyRows, part);
        });
  }

 private:
  using Table = std::vector<float>;  // [L, half]

  static std::pair<Table, Table> rotations(
      int64_t length,
      int64_t half,
      std::optional<float> base,
      const float* wavelengths,
      double position_scale,
      int offset) {
    Table cosines(length * half);
    Table sines(length * half);
    for (int64_t i = 0; i < half; ++i) {
      double wavelength = base
          ? std::pow(double{*base}, static_cast<double>(i) / half)
          : double{wavelengths[i]};
      for (int64_t token = 0; token < length; ++token) {
        double angle = (offset + token) * position_scale / wavelength;
        cosines[token * half + i] = static_cast<float>(std::cos(angle));
        sines[token * half + i] = static_cast<float>(std::sin(angle));
      }
    }
    return {std::move(cosines), std::move(sines)};
  }

  int64_t half_;
  std::optional<float> base_;
  float position_scale_;
  int offset_;
  bool has_wavelengths_;
  bool has_position_;
  Selection selection_;
};

}  // namespace

mx::array rope(
    const mx::array& x,
    const RopeAngles& angles,
    const Position& first,
    const Selection& selection) {
  bool covered = selection.has_cpu_kernels() && x.dtype() == mx::float32 &&
      x.ndim() == 4 && x.size() > 0 && !angles.traditional &&
      angles.dims <= x.shape(3) &&
      (!first.array || first.array->size() == 1 ||
       (first.array->ndim() == 1 && first.array->shape(0) == x.shape(0)));
  if (!covered) {
    return plain_rope(x, angles, first);
  }
  std::vector<mx::array> inputs{x};
  if (angles.wavelengths) {
    inputs.push_back(mx::contiguous(*angles.wavelengths));
  }
  if (first.array) {
    inputs.push_back(mx::contiguous(mx::astype(*first.array, mx::int32)));
  }
  return make_lazy(
      x.shape(),
      std::make_shared<CpuRope>(angles, first, selection),
      std::move(inputs));
}

}  // namespace mlxx::kernels
