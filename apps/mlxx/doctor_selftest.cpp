#include "apps/mlxx/doctor_selftest.h"

#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "mlxx/core/mlx.h"
#include "mlxx/core/parameters.h"
#include "mlxx/kernels/attention/attention.h"
#include "mlxx/kernels/quantized_matmul/quantized_matmul.h"
#include "mlxx/kernels/select.h"

namespace mlxx::apps {

namespace {

// Errors of float32 products of a few hundred terms are below 1e-5 of the
// norm; GPUs may round inputs to TF32, half precision is rougher still.
constexpr float kTolerance = 4e-3f;

mx::array random_array(mx::Shape shape, uint64_t seed) {
  return mx::random::normal(
      std::move(shape),
      mx::float32,
      0.0f,
      1.0f,
      mx::random::key(seed));
}

// |a - b| / |b|; infinite if anything is not finite.
float relative_error(const mx::array& a, const mx::array& b) {
  mx::array difference = mx::astype(a, mx::float32) - b;
  float error =
      (mx::linalg::norm(difference) / mx::linalg::norm(b)).item<float>();
  return std::isfinite(error) ? error : INFINITY;
}

SelftestCheck check(
    std::string name,
    const std::function<float(std::string& where)>& worst_error) {
  SelftestCheck result{.name = std::move(name), .passed = false, .detail = {}};
  try {
    std::string where;
    float error = worst_error(where);
    result.passed = error <= kTolerance;
    result.detail = fmt::format(
        "relative error {:.1e}{}{}",
        error,
        where.empty() ? "" : " at ",
        where);
  } catch (const std::exception& error) {
    result.detail = error.what();
  }
  return result;
}

// Against sums in double on the host, so that a BLAS has to prove itself.
float matmul_error(std::string& where) {
  constexpr int kRows = 33;
  constexpr int kColumns = 65;
  constexpr int kInner = 129;
  mx::array a = random_array({kRows, kInner}, 1);
  mx::array b = random_array({kInner, kColumns}, 2);
  mx::array product = mx::contiguous(mx::matmul(a, b));
  mx::eval(a, b, product);
  const float* x = a.data<float>();
  const float* y = b.data<float>();
  const float* z = product.data<float>();
  double difference = 0;
  double norm = 0;
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) {
      double sum = 0;
      for (int k = 0; k < kInner; ++k) {
        sum += static_cast<double>(x[i * kInner + k]) * y[k * kColumns + j];
      }
      double d = z[i * kColumns + j] - sum;
      difference += d * d;
      norm += sum * sum;
    }
  }
  where = fmt::format("{}x{}x{}", kRows, kInner, kColumns);
  double error = std::sqrt(difference / norm);
  return std::isfinite(error) ? static_cast<float>(error) : INFINITY;
}

float quantized_error(
    const QuantizationSpec& quantization,
    const kernels::Selection& selection,
    std::string& where) {
  constexpr int kInner = 256;
  float worst = 0;
  for (int outputs : {64, 96, 256}) {
    mx::array dense = random_array({outputs, kInner}, 3);
    auto packed = mx::quantize(
        dense,
        quantization.group_size,
        quantization.bits,
        quantization.mode);
    WeightArrays arrays{packed[0], packed[1], std::nullopt};
    if (packed.size() > 2) {
      arrays.biases = packed[2];
    }
    mx::array restored = mx::dequantize(
        arrays.weight,
        *arrays.scales,
        arrays.biases,
        quantization.group_size,
        quantization.bits,
        quantization.mode,
        std::nullopt,
        mx::float32);
    Parameter matrix({outputs, kInner}, Parameter::Kind::matrix);
    matrix.set(arrays, quantization);
    if (auto form = kernels::pack_quantized(arrays, quantization, selection)) {
      matrix.set_packed(form);
    }
    for (int rows : {1, 3, 32, 130}) {
      mx::array x = random_array({rows, kInner}, 4);
      float error = relative_error(
          kernels::quantized_matmul(x, matrix),
          mx::matmul(x, mx::transpose(restored)));
      if (error >= worst) {
        worst = error;
        where = fmt::format("{}x{}x{}", rows, kInner, outputs);
      }
    }
  }
  return worst;
}

float attention_error(std::string& where) {
  constexpr int kHeads = 4;
  constexpr int kKeyHeads = 2;
  constexpr int kSize = 64;
  float scale = 1.0f / std::sqrt(static_cast<float>(kSize));
  float worst = 0;
  for (int queries : {1, 5}) {
    for (int length : {5, 70}) {
      mx::array q = random_array({1, kHeads, queries, kSize}, 5);
      mx::array k = random_array({1, kKeyHeads, length, kSize}, 6);
      mx::array v = random_array({1, kKeyHeads, length, kSize}, 7);
      mx::array out = kernels::attention(
          q,
          kernels::DenseView{k, v},
          {.scale = scale, .mask = {queries > 1 ? "causal" : ""}});
      mx::array wide_k = mx::repeat(k, kHeads / kKeyHeads, 1);
      mx::array wide_v = mx::repeat(v, kHeads / kKeyHeads, 1);
      mx::array scores =
          mx::matmul(q * mx::array(scale), mx::transpose(wide_k, {0, 1, 3, 2}));
      // Query i of L sees the first S - L + i + 1 keys.
      mx::array last =
          mx::expand_dims(mx::arange(length - queries, length, mx::int32), 1);
      mx::array seen = mx::less_equal(mx::arange(0, length, mx::int32), last);
      scores = mx::where(seen, scores, mx::array(-INFINITY));
      float error =
          relative_error(out, mx::matmul(mx::softmax(scores, -1), wide_v));
      if (error >= worst) {
        worst = error;
        where = fmt::format("{} queries, {} keys", queries, length);
      }
    }
  }
  return worst;
}

}  // namespace

std::vector<SelftestCheck> run_selftest() {
  std::vector<SelftestCheck> checks;
  checks.push_back(check("matmul float32", matmul_error));
  auto selection = kernels::select_from_environment();
  auto add_quantized = [&](const QuantizationSpec& quantization) {
    checks.push_back(check(
        fmt::format(
            "quantized matmul {} {} bits, groups of {}",
            quantization.mode,
            quantization.bits,
            quantization.group_size),
        [&](std::string& where) {
          return quantized_error(quantization, selection, where);
        }));
  };
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    for (int group_size : {32, 64, 128}) {
      add_quantized({group_size, bits, "affine"});
    }
  }
  add_quantized({32, 4, "mxfp4"});
  add_quantized({32, 8, "mxfp8"});
  add_quantized({16, 4, "nvfp4"});
  checks.push_back(check("attention", attention_error));
  return checks;
}

}  // namespace mlxx::apps
