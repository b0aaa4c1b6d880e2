#pragma once

#include <map>

#include <cuda_runtime.h>

#include "mlxx/kernels/cuda_plugin/cuda_plugin.h"
#include "mlxx/kernels/cuda_plugin/device_arrays_cuda.h"
#include "mlxx/kernels/cuda_plugin/recycled_memory_cuda.h"
#include "mlxx/kernels/decode_step/cuda/step_inputs.h"

namespace mlxx::kernels {

// The table's entry of that name.
std::shared_ptr<CudaDecoder> make_cuda_decoder(
    cuda::Decoder decoder,
    const KvShape& shape,
    std::vector<mx::array> held,
    bool deterministic);

// A captured step, launched as often as its rows and lengths fit.
class CapturedStep {
 public:
  explicit CapturedStep(cudaGraphExec_t graph) : graph_(graph) {}
  ~CapturedStep() {
    cudaGraphExecDestroy(graph_);
  }
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;

  cudaGraphExec_t graph() const {
    return graph_;
  }

 private:
  cudaGraphExec_t graph_;
};

// The fixed buffers that steps of a decoder read and write, and its captured
// steps. Everything is launched on one stream, whose order protects the
// buffers. One thread at a time, that of the evaluation.
class DecoderSteps {
 public:
  // `shape`: of the blocks.
  DecoderSteps(
      cuda::Decoder decoder,
      const KvShape& shape,
      std::vector<mx::array> held,
      bool deterministic);
  ~DecoderSteps();

  int vocabulary() const {
    return decoder_.head.matrix.rows;
  }
  const cuda::Decoder& decoder() const {
    return decoder_;
  }
  size_t nbytes() const;

  // Whether buffers are large enough; makes larger ones. Evaluates, so it is
  // not to be called in an evaluation.
  void make_room(int rows, int blocks);

  // tokens [steps.size()] on the device; logits the same rows of V float32.
  // At most cuda::kMaxRows.
  void run(
      const int32_t* tokens,
      std::span<const SequenceKv::Step> steps,
      float* logits,
      cuda::Stream stream);
  // Copies blocks that were shared and are written to by these steps.
  void copy_shared(
      std::span<const SequenceKv::Step> steps,
      cuda::Stream stream);
  // For outputs of steps.
  RecycledMemory& output_memory() const {
    return *output_memory_;
  }
  // The table, whose first rows are these; they lie table_stride() apart.
  void* const* table_of(
      std::span<const KvBlocks* const> rows,
      cuda::Stream stream);
  int table_stride() const {
    return stride_;
  }

 private:
  using Key = std::pair<int, int>;  // padded rows, longest

  void set_table(std::span<const KvBlocks* const> rows, cuda::Stream stream);
  cuda::StepInput input_of(const Key& key) const;
  void launch(const Key& key, cuda::Stream stream);
  std::unique_ptr<CapturedStep> capture(const Key& key);

  cuda::Decoder decoder_;
  std::vector<mx::array> held_;
  bool deterministic_;
  KvBlocks padding_;  // one block
  std::shared_ptr<RecycledMemory> output_memory_ = RecycledMemory::make({});
  int max_rows_ = 0;
  int stride_ = 0;                      // blocks per row of the table
  std::optional<mx::array> workspace_;  // bytes
  std::optional<mx::array> logits_;     // [max_rows, V]
  std::optional<mx::array> table_;      // [max_rows, stride] pointers
  std::optional<mx::array> rows_;       // [2, max_rows]: tokens, lengths
  // What the device's table holds once all that was launched has run.
  std::vector<void*> known_;
  std::map<Key, std::unique_ptr<CapturedStep>> captured_;  // null: ran so far
  cudaStream_t capture_stream_ = nullptr;
};

}  // namespace mlxx::kernels
