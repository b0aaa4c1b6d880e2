#include <algorithm>

#include <mlx/primitives.h>

#include "mlxx/base/error.h"
#include "mlxx/kernels/decode_step/cuda/decoder_steps_cuda.h"

// Steps, and keys and values of prompts, as operations of MLX.

namespace mlxx::kernels {
namespace {

class OnCuda : public mx::Primitive {
 public:
  explicit OnCuda(std::shared_ptr<DecoderSteps> steps)
      : Primitive(default_stream()),
        memory_(stream()),
        steps_(std::move(steps)) {}

  void eval_cpu(const std::vector<mx::array>&, std::vector<mx::array>&)
      override {
    fail(ErrorKind::internal, name(), "runs on an NVIDIA device only");
  }

 protected:
  // A number that nobody reads: it stands for what was done.
  static void mark(mx::array& done) {
    done.set_data(mx::allocator::malloc(done.nbytes()));
  }
  template <typename Kept>
  void keep_until_run(Kept kept) {
    mx::cu::get_command_encoder(stream()).add_completed_handler(
        [kept = std::move(kept)] {});
  }

  OutputMemory memory_;
  std::shared_ptr<DecoderSteps> steps_;
};

// Inputs: tokens [B] int32, and what came before. Outputs: logits [B, V], [1].
class CudaStep : public OnCuda {
 public:
  CudaStep(
      std::shared_ptr<DecoderSteps> steps,
      std::vector<SequenceKv::Step> rows)
      : OnCuda(std::move(steps)), rows_(std::move(rows)) {}

  void eval_gpu(
      const std::vector<mx::array>& inputs,
      std::vector<mx::array>& outputs) override {
    steps_->output_memory().allocate(outputs[0], memory_);
    mark(outputs[1]);
    cuda::Stream queue = committed_stream(stream());
    const auto* tokens = device_pointer_as<int32_t>(inputs[0]);
    auto* logits = device_pointer_as<float>(outputs[0]);
    std::span<const SequenceKv::Step> rest = rows_;
    while (!rest.empty()) {
      auto part = rest.first(std::min<size_t>(rest.size(), cuda::kMaxRows));
      steps_->run(tokens, part, logits, queue);
      tokens += part.size();
      logits += part.size() * steps_->vocabulary();
      rest = rest.subspan(part.size());
    }
    keep_until_run(std::pair(std::move(rows_), steps_));
  }
  const char* name() const override {
    return "CudaStep";
  }

 private:
  std::vector<SequenceKv::Step> rows_;  // given away when it runs
};

// Inputs: keys and values of each layer, and what came before. Output: [1].
class CudaWriteKv : public OnCuda {
 public:
  CudaWriteKv(
      std::shared_ptr<DecoderSteps> steps,
      std::vector<SequenceKv::Step> rows,
      std::vector<int> lengths)
      : OnCuda(std::move(steps)),
        rows_(std::move(rows)),
        lengths_(std::move(lengths)) {}

  void eval_gpu(
      const std::vector<mx::array>& inputs,
      std::vector<mx::array>& outputs) override {
    mark(outputs[0]);
    cuda::Stream queue = committed_stream(stream());
    steps_->copy_shared(rows_, queue);
    std::vector<const KvBlocks*> blocks;
    cuda::KvRows rows;
    rows.rows = static_cast<int>(rows_.size());
    for (size_t b = 0; b < rows_.size(); ++b) {
      blocks.push_back(&rows_[b].blocks);
      rows.first[b] = rows_[b].from;
      rows.tokens[b] = lengths_[b];
    }
    void* const* table = steps_->table_of(blocks, queue);
    int layers = static_cast<int>(steps_->decoder().layers.size());
    for (int i = 0; i < layers * 2; ++i) {
      const mx::array& dense = inputs[i];
      cuda::KvPart part{
          .kv_heads = dense.shape(1),
          .head_size = dense.shape(3),
          .layer = i / 2,
          .part = i % 2,
          .tokens = dense.shape(2)};
      check(
          cuda::launch_write_kv(
              part,
              rows,
              device_pointer(dense),
              {dense.strides(0), dense.strides(1), dense.strides(2)},
              table,
              steps_->table_stride(),
              queue),
          "writing keys and values");
    }
    keep_until_run(std::pair(std::move(rows_), steps_));
  }
  const char* name() const override {
    return "CudaWriteKv";
  }

 private:
  std::vector<SequenceKv::Step> rows_;  // given away when it runs
  std::vector<int> lengths_;
};

// Inputs: what came before. Output: [1, K, tokens, D].
class CudaReadKv : public OnCuda {
 public:
  CudaReadKv(
      std::shared_ptr<DecoderSteps> steps,
      KvBlocks blocks,
      int layer,
      int part)
      : OnCuda(std::move(steps)),
        blocks_(std::move(blocks)),
        layer_(layer),
        part_(part) {}

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>& outputs)
      override {
    memory_.allocate(outputs[0]);
    cuda::Stream queue = committed_stream(stream());
    const KvBlocks* row = &blocks_;
    cuda::KvPart part{
        .kv_heads = outputs[0].shape(1),
        .head_size = outputs[0].shape(3),
        .layer = layer_,
        .part = part_,
        .tokens = outputs[0].shape(2)};
    check(
        cuda::launch_read_kv(
            part,
            steps_->table_of({&row, 1}, queue),
            device_pointer(outputs[0]),
            queue),
        "reading keys and values");
    keep_until_run(std::pair(std::move(blocks_), steps_));
  }
  const char* name() const override {
    return "CudaReadKv";
  }

 private:
  KvBlocks blocks_;  // given away when it runs
  int layer_;
  int part_;
};

class CudaDecoderSteps : public CudaDecoder {
 public:
  explicit CudaDecoderSteps(std::shared_ptr<DecoderSteps> steps)
      : steps_(std::move(steps)) {}

  std::pair<mx::array, mx::array> step(
      const mx::array& tokens,
      std::vector<SequenceKv::Step> rows,
      const std::vector<mx::array>& previous) override {
    int count = static_cast<int>(rows.size());
    if (tokens.ndim() != 1 || tokens.shape(0) != count || count == 0) {
      fail(
          ErrorKind::internal,
          "decode step",
          "tokens of shape ({}) for {} sequences",
          fmt::join(tokens.shape().begin(), tokens.shape().end(), ", "),
          count);
    }
    size_t blocks = 0;
    for (const auto& row : rows) {
      blocks = std::max(blocks, row.blocks.size());
    }
    steps_->make_room(
        std::min(count, cuda::kMaxRows),
        static_cast<int>(blocks));
    std::vector<mx::array> inputs{
        mx::contiguous(mx::astype(tokens, mx::int32))};
    inputs.insert(inputs.end(), previous.begin(), previous.end());
    auto outputs = mx::array::make_arrays(
        {{count, steps_->vocabulary()}, {1}},
        {mx::float32, mx::float32},
        std::make_shared<CudaStep>(steps_, std::move(rows)),
        std::move(inputs));
    return {outputs[0], outputs[1]};
  }

  mx::array write_kv(
      const std::vector<mx::array>& keys_values,
      std::vector<SequenceKv::Step> rows,
      std::vector<int> lengths,
      const std::vector<mx::array>& previous) override {
    size_t layers = steps_->decoder().layers.size();
    if (keys_values.size() != 2 * layers || rows.empty() ||
        rows.size() > cuda::kMaxRows || lengths.size() != rows.size()) {
      fail(
          ErrorKind::internal,
          "decode step",
          "{} arrays of keys and values for {} layers and {} rows",
          keys_values.size(),
          layers,
          rows.size());
    }
    size_t blocks = 0;
    for (size_t b = 0; b < rows.size(); ++b) {
      blocks = std::max(blocks, rows[b].blocks.size());
      if (lengths[b] < 0 || lengths[b] > keys_values[0].shape(2)) {
        fail(
            ErrorKind::internal,
            "decode step",
            "{} of {} tokens",
            lengths[b],
            keys_values[0].shape(2));
      }
    }
    steps_->make_room(static_cast<int>(rows.size()), static_cast<int>(blocks));
    std::vector<mx::array> inputs;
    for (const auto& array : keys_values) {
      inputs.push_back(mx::contiguous(mx::astype(array, mx::bfloat16)));
    }
    inputs.insert(inputs.end(), previous.begin(), previous.end());
    return mx::array(
        mx::Shape{1},
        mx::float32,
        std::make_shared<CudaWriteKv>(
            steps_,
            std::move(rows),
            std::move(lengths)),
        std::move(inputs));
  }

  mx::array read_kv(
      const KvBlocks& blocks,
      int layer,
      int part,
      int tokens,
      const std::vector<mx::array>& previous) override {
    const cuda::Decoder& decoder = steps_->decoder();
    steps_->make_room(1, static_cast<int>(blocks.size()));
    return mx::array(
        mx::Shape{1, decoder.kv_heads, tokens, decoder.head_size},
        mx::bfloat16,
        std::make_shared<CudaReadKv>(steps_, blocks, layer, part),
        previous);
  }

  size_t nbytes() const override {
    return steps_->nbytes();
  }

 private:
  std::shared_ptr<DecoderSteps> steps_;
};

}  // namespace

std::shared_ptr<CudaDecoder> make_cuda_decoder(
    cuda::Decoder decoder,
    const KvShape& shape,
    std::vector<mx::array> held,
    bool deterministic) {
  return std::make_shared<CudaDecoderSteps>(std::make_shared<DecoderSteps>(
      std::move(decoder),
      shape,
      std::move(held),
      deterministic));
}

}  // namespace mlxx::kernels
