#include "mlxx/kernels/decode_step/decode_step.h"

#include <mlx/backend/cpu/encoder.h>
#include <mlx/primitives.h>

#include "mlxx/base/error.h"

namespace mlxx::kernels {
namespace {

// Inputs: tokens [B, L] int32 in rows, and what the steps before gave.
// Outputs: logits and [1].
class CpuDecodeStep : public mx::Primitive {
 public:
  CpuDecodeStep(
      std::shared_ptr<DecoderProgram> program,
      std::vector<SequenceKv::Step> steps,
      std::vector<std::shared_ptr<const DecoderChanges>> changes,
      LogitRows rows)
      : Primitive(mx::default_stream(mx::Device::cpu)),
        program_(std::move(program)),
        steps_(std::move(steps)),
        changes_(std::move(changes)),
        rows_(rows) {}

  void eval_cpu(
      const std::vector<mx::array>& inputs,
      std::vector<mx::array>& outputs) override {
    for (auto& out : outputs) {
      out.set_data(mx::allocator::malloc(out.nbytes()));
    }
    int count = inputs[0].shape(1);
    auto work = std::make_shared<std::vector<DecoderInput>>();
    for (size_t i = 0; i < steps_.size(); ++i) {
      work->push_back(
          {inputs[0].data<int32_t>() + i * count,
           nullptr,
           count,
           std::move(steps_[i]),
           changes_.empty() ? nullptr : changes_[i]});
    }
    mx::cpu::get_command_encoder(stream()).dispatch(
        [program = program_,
         work,
         rows = rows_,
         logits = outputs[0].data<float>(),
         done = outputs[1].data<float>()] {
          program->run(*work, rows, logits);
          *done = 0;
        });
  }
  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&)
      override {
    fail(ErrorKind::internal, name(), "runs on the CPU only");
  }
  const char* name() const override {
    return "CpuDecodeStep";
  }

 private:
  std::shared_ptr<DecoderProgram> program_;
  std::vector<SequenceKv::Step> steps_;  // given away when it runs
  std::vector<std::shared_ptr<const DecoderChanges>> changes_;  // or none
  LogitRows rows_;
};

}  // namespace

DecodeStep::DecodeStep(
    std::shared_ptr<const DecoderWeights> weights,
    const Selection& selection)
    : weights_(std::move(weights)),
      shape_(kernels::kv_shape(*weights_, selection)),
      program_(std::make_shared<DecoderProgram>(weights_, selection)) {}

DecodeStep::Result DecodeStep::operator()(
    const mx::array& tokens,
    std::span<SequenceKv* const> sequences,
    std::span<const mx::array> previous,
    LogitRows rows,
    std::span<const std::shared_ptr<const DecoderChanges>> changes) const {
  if (tokens.ndim() != 2 || tokens.size() == 0 ||
      static_cast<size_t>(tokens.shape(0)) != sequences.size()) {
    fail(
        ErrorKind::internal,
        "decode step",
        "tokens of shape ({}) for {} sequences",
        fmt::join(tokens.shape().begin(), tokens.shape().end(), ", "),
        sequences.size());
  }
  if (!changes.empty() && changes.size() != sequences.size()) {
    fail(
        ErrorKind::internal,
        "decode step",
        "changes of {} sequences for {}",
        changes.size(),
        sequences.size());
  }
  int length = tokens.shape(1);
  for (const SequenceKv* sequence : sequences) {
    const auto& positions = weights_->positions;
    if (positions && sequence->length() + length > positions->out()) {
      fail(
          ErrorKind::invalid_request,
          "decode step",
          "position {} is past the {} that this model has",
          sequence->length() + length,
          positions->out());
    }
  }
  std::vector<SequenceKv::Step> steps;
  for (SequenceKv* sequence : sequences) {
    steps.push_back(sequence->extend(length));
  }
  std::vector<mx::array> inputs{mx::contiguous(mx::astype(tokens, mx::int32))};
  inputs.insert(inputs.end(), previous.begin(), previous.end());
  int batch = tokens.shape(0);
  int vocabulary = weights_->head.matrix->out();
  mx::Shape shape = rows == LogitRows::all
      ? mx::Shape{batch, length, vocabulary}
      : mx::Shape{batch, vocabulary};
  auto outputs = mx::array::make_arrays(
      {shape, {1}},
      {mx::float32, mx::float32},
      std::make_shared<CpuDecodeStep>(
          program_,
          std::move(steps),
          std::vector(changes.begin(), changes.end()),
          rows),
      std::move(inputs));
  return {outputs[0], outputs[1]};
}

}  // namespace mlxx::kernels
