#include "mlxx/kernels/decoder_layer/decoder_layer.h"

#include <mlx/backend/cpu/encoder.h>

#include "mlxx/base/error.h"
#include "mlxx/core/cpu_stream_primitive.h"

namespace mlxx::kernels {
namespace {

// Inputs: hidden [B, L, E] float32 in rows, and what the layer's calls
// before gave. Outputs: the same shape, and [1].
class CpuDecoderLayer : public CpuStreamPrimitive {
 public:
  CpuDecoderLayer(
      std::shared_ptr<DecoderProgram> program,
      int layer,
      std::vector<SequenceKv::Step> steps)
      : CpuStreamPrimitive(
            "CpuDecoderLayer",
            mx::default_stream(mx::Device::cpu)),
        program_(std::move(program)),
        layer_(layer),
        steps_(std::move(steps)) {}

  void eval_cpu(
      const std::vector<mx::array>& inputs,
      std::vector<mx::array>& outputs) override {
    for (auto& out : outputs) {
      out.set_data(mx::allocator::malloc(out.nbytes()));
    }
    int count = inputs[0].shape(1);
    int64_t row = int64_t{count} * inputs[0].shape(2);
    auto work = std::make_shared<std::vector<DecoderInput>>();
    for (size_t i = 0; i < steps_.size(); ++i) {
      work->push_back(
          {nullptr,
           inputs[0].data<float>() + static_cast<int64_t>(i) * row,
           count,
           std::move(steps_[i])});
    }
    mx::cpu::get_command_encoder(stream()).dispatch(
        [program = program_,
         layer = layer_,
         work,
         hidden = outputs[0].data<float>(),
         done = outputs[1].data<float>()] {
          program->run_layer(layer, *work, hidden);
          *done = 0;
        });
  }

 private:
  std::shared_ptr<DecoderProgram> program_;
  int layer_;
  std::vector<SequenceKv::Step> steps_;  // given away when it runs
};

}  // namespace

DecoderLayers::DecoderLayers(
    std::shared_ptr<const DecoderWeights> weights,
    const Selection& selection)
    : weights_(std::move(weights)),
      shape_(kernels::kv_shape(*weights_, selection)),
      program_(std::make_shared<DecoderProgram>(weights_, selection)) {
  shape_.layers = 1;
}

DecoderLayers::Result DecoderLayers::operator()(
    int layer,
    const mx::array& hidden,
    std::span<SequenceKv* const> sequences,
    std::span<const mx::array> previous) const {
  if (layer < 0 || static_cast<size_t>(layer) >= weights_->layers.size()) {
    fail(
        ErrorKind::internal,
        "decoder layer",
        "layer {} of {}",
        layer,
        weights_->layers.size());
  }
  if (hidden.ndim() != 3 || hidden.size() == 0 ||
      hidden.shape(2) != weights_->hidden_size ||
      static_cast<size_t>(hidden.shape(0)) != sequences.size()) {
    fail(
        ErrorKind::internal,
        "decoder layer",
        "hidden states of shape ({}) for {} sequences",
        fmt::join(hidden.shape().begin(), hidden.shape().end(), ", "),
        sequences.size());
  }
  std::vector<SequenceKv::Step> steps;
  for (SequenceKv* sequence : sequences) {
    steps.push_back(sequence->extend(hidden.shape(1)));
  }
  std::vector<mx::array> inputs{
      mx::contiguous(mx::astype(hidden, mx::float32))};
  inputs.insert(inputs.end(), previous.begin(), previous.end());
  auto outputs = mx::array::make_arrays(
      {hidden.shape(), {1}},
      {mx::float32, mx::float32},
      std::make_shared<CpuDecoderLayer>(program_, layer, std::move(steps)),
      std::move(inputs));
  return {outputs[0], outputs[1]};
}

}  // namespace mlxx::kernels
