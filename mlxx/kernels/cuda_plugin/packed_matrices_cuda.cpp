#include "mlxx/kernels/cuda_plugin/packed_matrices_cuda.h"

#include <mlx/primitives.h>

#include "mlxx/base/error.h"
#include "mlxx/kernels/cuda_plugin/device_arrays_cuda.h"
#include "mlxx/kernels/cuda_plugin/recycled_memory_cuda.h"

namespace mlxx::kernels {
namespace {

mx::array zero_bytes(size_t bytes) {
  constexpr size_t kRow = 256;
  mx::array buffer = mx::zeros(
      {static_cast<int>((bytes + kRow - 1) / kRow), static_cast<int>(kRow)},
      mx::uint8);
  mx::eval(buffer);
  return buffer;
}

bool is_affine(cuda::WeightFormat format) {
  return format == cuda::WeightFormat::affine4 ||
      format == cuda::WeightFormat::affine8;
}

int bits(cuda::WeightFormat format) {
  switch (format) {
    case cuda::WeightFormat::bfloat16:
      return 16;
    case cuda::WeightFormat::affine8:
      return 8;
    default:
      return 4;
  }
}

cuda::MlxMatrix
part_of(const cuda::PackedMatrix& whole, int rows, const WeightArrays& arrays) {
  return {
      .weight = device_pointer(arrays.weight),
      .scales = arrays.scales ? device_pointer(*arrays.scales) : nullptr,
      .biases = arrays.biases ? device_pointer(*arrays.biases) : nullptr,
      .rows = rows,
      .columns = whole.columns,
      .format = whole.format,
      .group = whole.group};
}

// No inputs; outputs: weight and, if it is quantized, scales and biases.
class CudaUnpack : public mx::Primitive {
 public:
  CudaUnpack(
      std::shared_ptr<const CudaMatrix> whole,
      cuda::RowOrder order,
      int first,
      int rows)
      : Primitive(default_stream()),
        memory_(stream()),
        whole_(std::move(whole)),
        order_(order),
        first_(first),
        rows_(rows) {}

  void eval_cpu(const std::vector<mx::array>&, std::vector<mx::array>&)
      override {
    fail(ErrorKind::internal, name(), "runs on an NVIDIA device only");
  }
  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>& outputs)
      override {
    auto& scratch = *static_cast<RecycledMemory*>(whole_->scratch.get());
    for (auto& output : outputs) {
      scratch.allocate(output, memory_);
    }
    WeightArrays arrays{outputs[0], std::nullopt, std::nullopt};
    if (outputs.size() > 1) {
      arrays.scales = outputs[1];
    }
    if (outputs.size() > 2) {
      arrays.biases = outputs[2];
    }
    cuda::Stream queue = committed_stream(stream());
    check(
        cuda::unpack(
            whole_->matrix,
            order_,
            first_,
            part_of(whole_->matrix, rows_, arrays),
            queue),
        "unpacking a matrix");
    // The matrix stays until that has run.
    mx::cu::get_command_encoder(stream()).add_completed_handler(
        [whole = whole_] {});
  }
  const char* name() const override {
    return "CudaUnpack";
  }

 private:
  OutputMemory memory_;
  std::shared_ptr<const CudaMatrix> whole_;
  cuda::RowOrder order_;
  int first_;
  int rows_;
};

}  // namespace

CudaMatrix make_cuda_matrix(const cuda::PackedMatrix& matrix) {
  cuda::PackedSize size = cuda::packed_size(matrix);
  CudaMatrix made{
      zero_bytes(size.codes),
      std::nullopt,
      matrix,
      RecycledMemory::of_matrices()};
  made.matrix.codes = device_pointer(made.codes);
  made.matrix.scales = nullptr;
  if (size.scales > 0) {
    made.scales = zero_bytes(size.scales);
    made.matrix.scales = device_pointer(*made.scales);
  }
  return made;
}

void pack_on_cuda(
    const WeightArrays& part,
    int rows,
    const CudaMatrix& whole,
    cuda::RowOrder order,
    int first) {
  bool affine = is_affine(whole.matrix.format);
  bool dense = whole.matrix.format == cuda::WeightFormat::bfloat16;
  auto prepare = [&](const mx::array& array, bool floats) {
    return mx::contiguous(floats ? mx::astype(array, mx::bfloat16) : array);
  };
  WeightArrays arrays{prepare(part.weight, dense), std::nullopt, std::nullopt};
  std::vector<mx::array> all{arrays.weight};
  for (auto [from, to] :
       {std::pair{&part.scales, &arrays.scales},
        std::pair{&part.biases, &arrays.biases}}) {
    if (*from) {
      *to = prepare(**from, affine);
      all.push_back(**to);
    }
  }
  mx::eval(all);
  cuda::Stream queue = committed_stream(default_stream());
  check(
      cuda::pack(
          part_of(whole.matrix, rows, arrays),
          whole.matrix,
          order,
          first,
          queue),
      "packing a matrix");
  // The arrays are freed here, and nothing of ours says when that has run.
  mx::synchronize(default_stream());
}

WeightArrays unpack_on_cuda(
    std::shared_ptr<const CudaMatrix> whole,
    cuda::RowOrder order,
    int first,
    int rows) {
  const cuda::PackedMatrix& matrix = whole->matrix;
  bool dense = matrix.format == cuda::WeightFormat::bfloat16;
  bool affine = is_affine(matrix.format);
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  shapes.push_back(
      {rows,
       dense ? matrix.columns : matrix.columns / 32 * bits(matrix.format)});
  dtypes.push_back(dense ? mx::bfloat16 : mx::uint32);
  for (int i = 0; i < (dense ? 0 : affine ? 2 : 1); ++i) {
    shapes.push_back({rows, matrix.columns / matrix.group});
    dtypes.push_back(affine ? mx::bfloat16 : mx::uint8);
  }
  auto arrays = mx::array::make_arrays(
      std::move(shapes),
      dtypes,
      std::make_shared<CudaUnpack>(std::move(whole), order, first, rows),
      {});
  WeightArrays result{arrays[0], std::nullopt, std::nullopt};
  if (arrays.size() > 1) {
    result.scales = arrays[1];
  }
  if (arrays.size() > 2) {
    result.biases = arrays[2];
  }
  return result;
}

}  // namespace mlxx::kernels
