#include "mlxx/kernels/rope/rope.h"

#include <cmath>
#include <cstring>

#include "mlxx/kernels/cpu_primitive.h"
#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

constexpr int64_t kManyRows = 64;

mx::array plain_rope(const mx::array& x, const RopeAngles& angles, int offset) {
  return mx::fast::rope(
      x,
      angles.dims,
      angles.traditional,
      angles.base,
      angles.position_scale,
      offset,
      angles.wavelengths);
}

// Inputs: x, and the wavelengths if they are given.
class CpuRope : public CpuPrimitive {
 public:
  CpuRope(const RopeAngles& angles, int offset, const Selection& selection)
      : CpuPrimitive(
            "CpuRope",
            [angles, offset](const std::vector<mx::array>& inputs) {
              return std::vector{plain_rope(inputs[0], angles, offset)};
            }),
        half_(angles.dims / 2),
        base_(angles.base),
        position_scale_(angles.position_scale),
        offset_(offset),
        selection_(selection) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    out.set_data(mx::allocator::malloc(out.nbytes()));
    const mx::array& x = inputs[0];
    const float* wavelengths =
        inputs.size() > 1 ? inputs[1].data<float>() : nullptr;
    dispatch([from = x.data<float>(),
              strides = x.strides(),
              shape = x.shape(),
              wavelengths,
              y = out.data<float>(),
              half = half_,
              base = base_,
              position_scale = position_scale_,
              offset = offset_,
              selection = selection_] {
      auto [cosines, sines] =
          rotations(shape[2], half, base, wavelengths, position_scale, offset);
      const auto& kernels = row_kernels(selection.instruction_set);
      int64_t size = shape[3];
      int64_t rows = int64_t{shape[0]} * shape[1] * shape[2];
      auto part = [&](size_t begin, size_t end) {
        std::vector<float> copy(strides[3] == 1 ? 0 : size);
        for (size_t row = begin; row < end; ++row) {
          int64_t token = row % shape[2];
          int64_t head = row / shape[2] % shape[1];
          int64_t batch = row / shape[2] / shape[1];
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
  Selection selection_;
};

}  // namespace

mx::array rope(
    const mx::array& x,
    const RopeAngles& angles,
    int offset,
    const Selection& selection) {
  bool covered = selection.has_cpu_kernels() && x.dtype() == mx::float32 &&
      x.ndim() == 4 && x.size() > 0 && !angles.traditional &&
      angles.dims <= x.shape(3);
  if (!covered) {
    return plain_rope(x, angles, offset);
  }
  std::vector<mx::array> inputs{x};
  if (angles.wavelengths) {
    inputs.push_back(mx::contiguous(*angles.wavelengths));
  }
  return make_lazy(
      x.shape(),
      std::make_shared<CpuRope>(angles, offset, selection),
      std::move(inputs));
}

}  // namespace mlxx::kernels
