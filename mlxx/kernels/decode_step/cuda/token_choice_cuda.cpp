#include "mlxx/kernels/decode_step/cuda/token_choice_cuda.h"

#include <algorithm>

#include <mlx/primitives.h>

#include "mlxx/base/error.h"
#include "mlxx/kernels/cuda_plugin/device_arrays_cuda.h"
#include "mlxx/kernels/cuda_plugin/pinned_memory_cuda.h"
#include "mlxx/kernels/cuda_plugin/recycled_memory_cuda.h"

namespace mlxx::kernels {
namespace {

// Input: logits [B, V]. Outputs: tokens, check, logprobs [B], which the host
// reads, and memory to work in.
class CudaChoice : public mx::Primitive {
 public:
  explicit CudaChoice(std::vector<cuda::TokenSampling> rows)
      : Primitive(default_stream()),
        memory_(stream()),
        rows_(std::move(rows)) {}

  void eval_cpu(const std::vector<mx::array>&, std::vector<mx::array>&)
      override {
    fail(ErrorKind::internal, name(), "runs on an NVIDIA device only");
  }
  void eval_gpu(
      const std::vector<mx::array>& inputs,
      std::vector<mx::array>& outputs) override {
    auto pinned = PinnedMemory::shared();
    for (int i = 0; i < 3; ++i) {
      if (!pinned->allocate(outputs[i])) {
        memory_.allocate(outputs[i]);
      }
    }
    static const std::shared_ptr<RecycledMemory> workspaces =
        RecycledMemory::make({});
    workspaces->allocate(outputs[3], memory_);
    cuda::Stream queue = committed_stream(stream());
    const int vocabulary = inputs[0].shape(1);
    for (size_t from = 0; from < rows_.size(); from += cuda::kMaxRows) {
      size_t count = std::min<size_t>(rows_.size() - from, cuda::kMaxRows);
      cuda::ChoiceInput input;
      input.rows = static_cast<int>(count);
      input.vocabulary = vocabulary;
      input.logits = device_pointer_as<float>(inputs[0]) + from * vocabulary;
      std::copy_n(rows_.begin() + from, count, input.sampling);
      input.tokens = device_pointer_as<int32_t>(outputs[0]) + from;
      input.check = device_pointer_as<float>(outputs[1]) + from;
      input.logprobs = device_pointer_as<float>(outputs[2]) + from;
      check(
          cuda::launch_choice(input, device_pointer(outputs[3]), queue),
          "choosing tokens");
    }
  }
  const char* name() const override {
    return "CudaChoice";
  }

 private:
  OutputMemory memory_;
  std::vector<cuda::TokenSampling> rows_;
};

}  // namespace

CudaChoices choose_on_cuda(
    const mx::array& logits,
    std::vector<cuda::TokenSampling> rows) {
  if (logits.ndim() != 2 || logits.dtype() != mx::float32 ||
      std::ssize(rows) != logits.shape(0) || logits.size() == 0) {
    fail(
        ErrorKind::internal,
        "choice of tokens",
        "logits of shape ({}) for {} rows",
        fmt::join(logits.shape().begin(), logits.shape().end(), ", "),
        rows.size());
  }
  int count = logits.shape(0);
  size_t bytes = cuda::choice_workspace_bytes(
      std::min(count, cuda::kMaxRows),
      logits.shape(1));
  // Logits of a step are contiguous already.
  mx::array whole =
      logits.status() != mx::array::unscheduled && logits.flags().row_contiguous
      ? logits
      : mx::contiguous(logits);
  auto outputs = mx::array::make_arrays(
      {{count}, {count}, {count}, {static_cast<int>(bytes)}},
      {mx::int32, mx::float32, mx::float32, mx::uint8},
      std::make_shared<CudaChoice>(std::move(rows)),
      {whole});
  return {outputs[0], outputs[1], outputs[2]};
}

}  // namespace mlxx::kernels
