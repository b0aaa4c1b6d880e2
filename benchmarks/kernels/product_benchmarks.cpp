#include <fmt/format.h>

#include <functional>
#include <vector>

#include "benchmarks/kernels/workbench.h"
#include "mlxx/kernels/cpu_variants.h"
#include "mlxx/kernels/quantized_matmul/packed_panels.h"

namespace mlxx::benchmarks {
namespace {

using kernels::ActivationForm;
using kernels::PanelMatrix;

struct Shape {
  int out;
  int in;
};

const Shape kShapes[] = {
    // SmolLM2-135M
    {576, 576},
    {1536, 576},
    {3072, 576},
    {576, 1536},
    {49152, 576},
    // Llama 3.2 1B
    {2048, 2048},
    {8192, 2048},
    {2048, 8192},
    // Llama 3.2 3B
    {3072, 3072},
    {8192, 3072},
};
constexpr int kRows[] = {1, 2, 8, 32, 512};
// Up to here memory is what limits a product: every call reads other weights.
constexpr int kMostColdRows = 32;

struct Format {
  const char* name;
  int bits;  // 0: dense bfloat16
  int group_size;
  const char* mode;
};

const Format kFormats[] = {
    {"4bit", 4, 32, "affine"},
    {"8bit", 8, 32, "affine"},
    {"bf16", 0, 32, ""},
    {"mxfp4", 4, 32, "mxfp4"},
    {"nvfp4", 4, 16, "nvfp4"},
    {"mxfp8", 8, 32, "mxfp8"},
};

// Any numbers do, as long as none is subnormal.
std::unique_ptr<PanelMatrix> make_matrix(
    const Shape& shape,
    const Format& format,
    const kernels::Selection& selection) {
  if (format.bits == 0) {
    return std::make_unique<PanelMatrix>(
        mx::full({shape.out, shape.in}, 0.01f, mx::bfloat16),
        selection);
  }
  mx::Shape groups{shape.out, shape.in / format.group_size};
  bool affine = format.mode == std::string_view("affine");
  mx::array scales = affine ? mx::full(groups, 0.01f, mx::float16)
                            : mx::full(groups, 120, mx::uint8);
  WeightArrays arrays{
      mx::full(
          {shape.out, shape.in * format.bits / 32},
          uint32_t{0x6b3c92a5},
          mx::uint32),
      scales,
      affine ? std::optional(mx::full(groups, -0.07f, mx::float16))
             : std::nullopt};
  return std::make_unique<PanelMatrix>(
      arrays,
      QuantizationSpec{format.group_size, format.bits, format.mode},
      selection);
}

// The copies of one matrix, kept until another one is asked for: a benchmark
// is called several times.
class Copies {
 public:
  using Matrices = std::vector<std::unique_ptr<PanelMatrix>>;

  const Matrices& get(
      const std::string& name,
      int64_t bytes,
      const std::function<std::unique_ptr<PanelMatrix>()>& make) {
    if (name != name_) {
      matrices_.clear();
      name_ = name;
      int64_t total = 0;
      do {
        matrices_.push_back(make());
        total += static_cast<int64_t>(matrices_.back()->nbytes());
      } while (total < bytes);
    }
    return matrices_;
  }

 private:
  std::string name_;
  Matrices matrices_;
};

double most_operations(
    const Workbench& bench,
    const Format& format,
    ActivationForm form) {
  if (form == ActivationForm::float32) {
    return bench.peaks.float_operations;
  }
  // An instruction multiplies twice as many numbers of bfloat16 as of float32.
  return format.bits == 0 ? 2 * bench.peaks.float_operations
                          : bench.peaks.byte_operations;
}

// In which forms activations meet matrices of that format.
std::vector<ActivationForm> forms_of(
    const Workbench& bench,
    const Format& format) {
  if (format.mode == std::string_view("mxfp8")) {
    return {ActivationForm::float32};
  }
  if (format.bits > 0) {
    return {
        ActivationForm::int8,
        ActivationForm::int16,
        ActivationForm::float32};
  }
  if (kernels::dense_kernels(bench.selection.instruction_set).round_row) {
    return {ActivationForm::int8, ActivationForm::float32};
  }
  return {ActivationForm::float32};
}

void register_product(
    const Workbench& bench,
    const std::shared_ptr<Copies>& copies,
    const Shape& shape,
    const Format& format,
    ActivationForm form) {
  kernels::Selection selection = bench.selection;
  selection.activations = form;
  for (int rows : kRows) {
    bool cold = rows <= kMostColdRows;
    std::string matrix = fmt::format(
        "product/{}x{}/{}/{}",
        shape.out,
        shape.in,
        format.name,
        to_string(form));
    auto run = [=, &bench](benchmark::State& state) {
      const auto& matrices = copies->get(
          fmt::format("{}/{}", matrix, cold),
          cold ? 2 * last_level_cache() : 1,
          [&] { return make_matrix(shape, format, selection); });
      std::vector<float> x(rows * shape.in);
      for (size_t i = 0; i < x.size(); ++i) {
        x[i] = static_cast<float>(static_cast<int>(i % 37) - 18);
      }
      std::vector<float> y(rows * shape.out);
      Work work{
          static_cast<double>(matrices[0]->nbytes()),
          2.0 * rows * shape.in * shape.out,
          most_operations(bench, format, form)};
      measure(state, bench, work, [&](int64_t iteration) {
        matrices[iteration % matrices.size()]->multiply(
            x.data(),
            rows,
            y.data());
        benchmark::DoNotOptimize(y.data());
      });
    };
    benchmark::RegisterBenchmark(
        fmt::format("{}/rows:{}", matrix, rows).c_str(),
        run)
        ->UseRealTime()
        ->MinTime(0.1);
  }
}

}  // namespace

void register_products(const Workbench& bench) {
  auto copies = std::make_shared<Copies>();
  for (const Shape& shape : kShapes) {
    for (const Format& format : kFormats) {
      for (auto form : forms_of(bench, format)) {
        register_product(bench, copies, shape, format, form);
      }
    }
  }
}

}  // namespace mlxx::benchmarks
