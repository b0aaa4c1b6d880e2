#include "mlxx/kernels/gated_delta/gated_delta_cpu.h"

#include <algorithm>
#include <cmath>

#include "mlxx/kernels/cpu_primitive.h"
#include "mlxx/kernels/cpu_variants.h"
#include "mlxx/kernels/lane_tasks.h"

namespace mlxx::kernels {
namespace {

using Arrays = std::vector<mx::array>;

// Heads times tokens below which one thread does it all.
constexpr int64_t kFewSteps = 4;

// Inputs: queries, keys, values, decays, betas, state [B, Hv, Dk, Dv] and the
// mask if there is one.
class CpuGatedDelta : public StatefulPrimitive {
 public:
  explicit CpuGatedDelta(const Selection& selection)
      : StatefulPrimitive("CpuGatedDelta", plain, selection) {}

  void eval_cpu(const Arrays& in, Arrays& outputs) override {
    mx::array& out = outputs[0];
    mx::array& state = outputs[1];
    out.set_data(mx::allocator::malloc(out.nbytes()));
    take_or_allocate(in[5], state);
    Job job;
    job.tokens = in[0].shape(1);
    job.key_heads = in[0].shape(2);
    job.key_size = in[0].shape(3);
    job.heads = in[2].shape(2);
    job.value_size = in[2].shape(3);
    job.rows = in[0].shape(0);
    job.decays_per_key = in[3].ndim() == 4;
    job.queries = in[0].data<float>();
    job.keys = in[1].data<float>();
    job.values = in[2].data<float>();
    job.decays = in[3].data<float>();
    job.betas = in[4].data<float>();
    job.old_state = in[5].data<float>();
    job.mask = in.size() > 6 ? in[6].data<bool>() : nullptr;
    job.state = state.data<float>();
    job.out = out.data<float>();
    dispatch([job, selection = selection_] { run(job, selection); });
  }

 private:
  struct Job {
    int64_t rows, tokens, key_heads, heads, key_size, value_size;
    bool decays_per_key;
    const float *queries, *keys, *values, *decays, *betas, *old_state;
    const bool* mask;
    float *state, *out;
  };

  static Arrays plain(const Arrays& in) {
    std::optional<mx::array> mask;
    if (in.size() > 6) {
      mask = in[6];
    }
    auto result = plain_gated_delta(
        {in[0], in[1], in[2], in[3], in[4], mx::swapaxes(in[5], 2, 3), mask});
    return {result.out, mx::swapaxes(result.state, 2, 3)};
  }

  static void run(const Job& job, const Selection& selection) {
    const auto& kernels = recurrent_kernels(selection.instruction_set);
    for_each_lane_task(
        selection,
        job.rows,
        job.heads,
        job.value_size,
        job.tokens,
        kFewSteps,
        [&](int64_t row, int64_t head, int64_t lane) {
          run_block(job, kernels, row, head, lane);
        });
  }

  // The lanes from `lane` on of head `head` in sequence `row`.
  static void run_block(
      const Job& job,
      const RecurrentKernels& kernels,
      int64_t row,
      int64_t head,
      int64_t lane) {
    int64_t key_head = head / (job.heads / job.key_heads);
    int64_t first_key = row * job.tokens * job.key_heads + key_head;
    int64_t first = row * job.tokens * job.heads + head;
    int64_t decay_size = job.decays_per_key ? job.key_size : 1;
    int64_t state_at =
        (row * job.heads + head) * job.key_size * job.value_size + lane;
    DeltaTask task;
    task.queries = job.queries + first_key * job.key_size;
    task.keys = job.keys + first_key * job.key_size;
    task.values = job.values + first * job.value_size + lane;
    task.decays = job.decays + first * decay_size;
    task.betas = job.betas + first;
    task.mask = job.mask ? job.mask + row * job.tokens : nullptr;
    task.state = job.state + state_at;
    task.out = job.out + first * job.value_size + lane;
    task.tokens = job.tokens;
    task.key_size = job.key_size;
    task.lanes = std::min(kLanesPerTask, job.value_size - lane);
    task.key_stride = job.key_heads * job.key_size;
    task.value_stride = job.heads * job.value_size;
    task.decay_stride = job.heads * decay_size;
    task.decay_step = job.decays_per_key ? 1 : 0;
    task.beta_stride = job.heads;
    task.state_stride = job.value_size;
    copy_lanes(
        job.old_state + state_at,
        task.state,
        job.key_size,
        job.value_size,
        task.lanes);
    kernels.gated_delta(task);
  }
};

// Inputs: a, a_log, bias.
class CpuDecays : public CpuPrimitive {
 public:
  explicit CpuDecays(const Selection& selection)
      : CpuPrimitive("CpuDecays", plain_decays), selection_(selection) {}

  void eval_cpu(const Arrays& in, mx::array& out) override {
    out.set_data(mx::allocator::malloc(out.nbytes()));
    const float* a = in[0].data<float>();
    const float* a_log = in[1].data<float>();
    const float* bias = in[2].data<float>();
    float* y = out.data<float>();
    int64_t heads = out.shape(2);
    int64_t rows = static_cast<int64_t>(out.size()) / heads;
    dispatch([=, selection = selection_] {
      auto part = [&](size_t begin, size_t end) {
        for (int64_t head = 0; head < heads; ++head) {
          float rate = -std::exp(a_log[head]);
          for (size_t row = begin; row < end; ++row) {
            int64_t at = static_cast<int64_t>(row) * heads + head;
            float x = a[at] + bias[head];
            float softplus =
                std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x)));
            y[at] = std::exp(rate * softplus);
          }
        }
      };
      for_each_row_range(selection, rows, kFewRows, part);
    });
  }

 private:
  static constexpr int64_t kFewRows = 16;
  Selection selection_;
};

bool is_float32(const mx::array& a) {
  return a.dtype() == mx::float32;
}

}  // namespace

bool covers_decays(
    const mx::array& a,
    const mx::array& a_log,
    const mx::array& bias,
    const Selection& selection) {
  return selection.has_cpu_kernels() && is_float32(a) && is_float32(a_log) &&
      is_float32(bias);
}

mx::array cpu_decays(
    const mx::array& a,
    const mx::array& a_log,
    const mx::array& bias,
    const Selection& selection) {
  return make_lazy(
      a.shape(),
      std::make_shared<CpuDecays>(selection),
      {in_order(a), in_order(a_log), in_order(bias)});
}

bool covers_gated_delta(
    const GatedDeltaInputs& in,
    const Selection& selection) {
  return selection.has_cpu_kernels() && is_float32(in.queries) &&
      is_float32(in.keys) && is_float32(in.values) && is_float32(in.decays) &&
      is_float32(in.betas) && is_float32(*in.state) && in.queries.size() > 0;
}

StatefulResult cpu_gated_delta(
    const GatedDeltaInputs& in,
    const Selection& selection) {
  mx::array state = mx::swapaxes(*in.state, 2, 3);
  Arrays inputs;
  for (const auto& a :
       {in.queries, in.keys, in.values, in.decays, in.betas, state}) {
    inputs.push_back(in_order(a));
  }
  if (in.mask) {
    inputs.push_back(in_order(*in.mask));
  }
  auto result = make_stateful(
      in.values.shape(),
      state.shape(),
      std::make_shared<CpuGatedDelta>(selection),
      inputs);
  return {result.out, mx::swapaxes(result.state, 2, 3)};
}

}  // namespace mlxx::kernels
