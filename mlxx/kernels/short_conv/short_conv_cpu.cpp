#include "mlxx/kernels/short_conv/short_conv_cpu.h"

#include <algorithm>
#include <cstring>

#include "mlxx/kernels/cpu_variants.h"
#include "mlxx/kernels/lane_tasks.h"

namespace mlxx::kernels {
namespace {

using Arrays = std::vector<mx::array>;

// Channel blocks times tokens below which one thread does it all, in some
// microseconds.
constexpr int64_t kFewSteps = 512;

// Inputs: x, weight, state, and then bias and lengths as far as there are any.
class CpuShortConv : public StatefulPrimitive {
 public:
  struct Form {
    bool silu;
    bool has_bias;
    bool has_lengths;
  };

  CpuShortConv(Form form, const Selection& selection)
      : StatefulPrimitive(
            "CpuShortConv",
            [form](const Arrays& in) {
              auto result = plain_short_conv(unpack(in, form));
              return Arrays{result.out, result.state};
            },
            selection),
        form_(form) {}

  void eval_cpu(const Arrays& in, Arrays& outputs) override {
    mx::array& out = outputs[0];
    mx::array& state = outputs[1];
    out.set_data(mx::allocator::malloc(out.nbytes()));
    state.set_data(mx::allocator::malloc(state.nbytes()));
    auto inputs = unpack(in, form_);
    Job job;
    job.rows = out.shape(0);
    job.tokens = out.shape(1);
    job.channels = out.shape(2);
    job.width = inputs.weight.shape(1);
    job.silu = form_.silu;
    job.x = inputs.x.data<float>();
    job.weight = inputs.weight.data<float>();
    job.bias = form_.has_bias ? inputs.bias->data<float>() : nullptr;
    job.old_state = inputs.state->data<float>();
    job.lengths = form_.has_lengths ? inputs.lengths->data<int32_t>() : nullptr;
    job.state = state.data<float>();
    job.out = out.data<float>();
    dispatch([job, selection = selection_] { run(job, selection); });
  }

 private:
  struct Job {
    int64_t rows, tokens, channels, width;
    bool silu;
    const float *x, *weight, *bias, *old_state;
    const int32_t* lengths;
    float *state, *out;
  };

  static ShortConvInputs unpack(const Arrays& in, const Form& form) {
    ShortConvInputs inputs{in[0], in[1], {}, form.silu, in[2], {}};
    size_t next = 3;
    if (form.has_bias) {
      inputs.bias = in[next++];
    }
    if (form.has_lengths) {
      inputs.lengths = in[next++];
    }
    return inputs;
  }

  static void run(const Job& job, const Selection& selection) {
    const auto& kernels = recurrent_kernels(selection.instruction_set);
    for_each_lane_task(
        selection,
        job.rows,
        /* heads= */ 1,
        job.channels,
        job.tokens,
        kFewSteps,
        [&](int64_t row, int64_t, int64_t channel) {
          run_block(job, kernels, row, channel);
        });
  }

  // The channels from `channel` on of sequence `row`.
  static void run_block(
      const Job& job,
      const RecurrentKernels& kernels,
      int64_t row,
      int64_t channel) {
    // [width, kLanesPerTask], for vectors of channels.
    float weights[kMaxConvWidth * kLanesPerTask];
    int64_t count = std::min(kLanesPerTask, job.channels - channel);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j < job.width; ++j) {
        weights[j * kLanesPerTask + i] =
            job.weight[(channel + i) * job.width + j];
      }
    }
    int64_t kept = job.width - 1;
    ConvTask task;
    task.state = job.old_state + row * kept * job.channels + channel;
    task.x = job.x + row * job.tokens * job.channels + channel;
    task.weights = weights;
    task.bias = job.bias ? job.bias + channel : nullptr;
    task.silu = job.silu;
    task.out = job.out + row * job.tokens * job.channels + channel;
    task.tokens = job.tokens;
    task.width = job.width;
    task.channels = count;
    task.stride = job.channels;
    task.x_stride = job.channels;
    task.weight_stride = kLanesPerTask;
    task.out_stride = job.channels;
    kernels.short_conv(task);
    int64_t end = job.tokens;
    if (job.lengths) {
      end = std::clamp<int64_t>(job.lengths[row], 0, job.tokens);
    }
    for (int64_t j = 0; j < kept; ++j) {
      int64_t at = end + j - kept;  // in x; before it, the old state
      const float* from = at < 0 ? task.state + (at + kept) * job.channels
                                 : task.x + at * job.channels;
      std::memcpy(
          job.state + (row * kept + j) * job.channels + channel,
          from,
          static_cast<size_t>(count) * sizeof(float));
    }
  }

  Form form_;
};

}  // namespace

bool covers_short_conv(const ShortConvInputs& in, const Selection& selection) {
  auto fits = [](const mx::array& a) { return a.dtype() == mx::float32; };
  return selection.has_cpu_kernels() && fits(in.x) && fits(in.weight) &&
      fits(*in.state) && (!in.bias || fits(*in.bias)) &&
      (!in.lengths || in.lengths->dtype() == mx::int32) &&
      in.weight.shape(1) <= kMaxConvWidth;
}

StatefulResult cpu_short_conv(
    const ShortConvInputs& in,
    const Selection& selection) {
  Arrays inputs = {in_order(in.x), in_order(in.weight), in_order(*in.state)};
  if (in.bias) {
    inputs.push_back(in_order(*in.bias));
  }
  if (in.lengths) {
    inputs.push_back(in_order(*in.lengths));
  }
  return make_stateful(
      in.x.shape(),
      in.state->shape(),
      std::make_shared<CpuShortConv>(
          CpuShortConv::Form{
              in.silu,
              in.bias.has_value(),
              in.lengths.has_value()},
          selection),
      inputs);
}

}  // namespace mlxx::kernels
