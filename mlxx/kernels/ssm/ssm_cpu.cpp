#include "mlxx/kernels/ssm/ssm_cpu.h"

#include <algorithm>
#include <cmath>

#include "mlxx/kernels/cpu_variants.h"
#include "mlxx/kernels/lane_tasks.h"

namespace mlxx::kernels {
namespace {

using Arrays = std::vector<mx::array>;

// Heads times tokens below which one thread does it all.
constexpr int64_t kFewSteps = 4;

// Inputs: x, B, C, D, dt, its bias, log(-A), state [B, H, N, Dh] and the mask
// if there is one.
class CpuScan : public StatefulPrimitive {
 public:
  CpuScan(float lowest, float highest, const Selection& selection)
      : StatefulPrimitive(
            "CpuScan",
            [=](const Arrays& in) { return plain(in, lowest, highest); },
            selection),
        lowest_(lowest),
        highest_(highest) {}

  void eval_cpu(const Arrays& in, Arrays& outputs) override {
    mx::array& out = outputs[0];
    mx::array& state = outputs[1];
    out.set_data(mx::allocator::malloc(out.nbytes()));
    take_or_allocate(in[7], state);
    Job job;
    job.rows = in[0].shape(0);
    job.tokens = in[0].shape(1);
    job.heads = in[0].shape(2);
    job.head_size = in[0].shape(3);
    job.groups = in[1].shape(2);
    job.size = in[1].shape(3);
    job.x = in[0].data<float>();
    job.b = in[1].data<float>();
    job.c = in[2].data<float>();
    job.d = in[3].data<float>();
    job.dt = in[4].data<float>();
    job.dt_bias = in[5].data<float>();
    job.a_log = in[6].data<float>();
    job.lowest = lowest_;
    job.highest = highest_;
    job.old_state = in[7].data<float>();
    job.mask = in.size() > 8 ? in[8].data<bool>() : nullptr;
    job.state = state.data<float>();
    job.out = out.data<float>();
    dispatch([job, selection = selection_] { run(job, selection); });
  }

 private:
  struct Job {
    int64_t rows, tokens, heads, head_size, groups, size;
    const float *x, *b, *c, *d, *dt, *dt_bias, *a_log, *old_state;
    float lowest, highest;
    const bool* mask;
    float *state, *out;
  };

  // The recurrence in plain operations, for the gradient.
  static Arrays plain(const Arrays& in, float lowest, float highest) {
    mx::array steps = ssm_steps(in[4], in[5], lowest, highest);
    mx::array decays =
        mx::exp(mx::multiply(steps, mx::negative(mx::exp(in[6]))));
    int tokens = in[0].shape(1);
    int repeats = in[0].shape(2) / in[1].shape(2);
    auto at = [](const mx::array& a, int t) {
      mx::Shape from(a.ndim(), 0);
      mx::Shape to = a.shape();
      from[1] = t;
      to[1] = t + 1;
      return mx::squeeze(mx::slice(a, from, to), 1);
    };
    mx::array b = mx::repeat(in[1], repeats, 2);
    mx::array c = mx::repeat(in[2], repeats, 2);
    mx::array state = in[7];
    Arrays ys;
    for (int t = 0; t < tokens; ++t) {
      mx::array x = at(in[0], t);
      mx::array keep = mx::expand_dims(at(decays, t), {2, 3});
      mx::array add = mx::multiply(x, mx::expand_dims(at(steps, t), 2));
      mx::array next = mx::add(
          mx::multiply(state, keep),
          mx::multiply(mx::expand_dims(at(b, t), 3), mx::expand_dims(add, 2)));
      mx::array y =
          mx::sum(mx::multiply(next, mx::expand_dims(at(c, t), 3)), 2);
      y = mx::add(y, mx::multiply(x, mx::reshape(in[3], {1, -1, 1})));
      if (in.size() > 8) {
        mx::array counts = at(in[8], t);
        next = mx::where(mx::expand_dims(counts, {1, 2, 3}), next, state);
        y = mx::where(mx::expand_dims(counts, {1, 2}), y, mx::array(0.0f));
      }
      state = next;
      ys.push_back(y);
    }
    return {mx::stack(ys, 1), state};
  }

  static void run(const Job& job, const Selection& selection) {
    const auto& kernels = recurrent_kernels(selection.instruction_set);
    for_each_lane_task(
        selection,
        job.rows,
        job.heads,
        job.head_size,
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
    int64_t group = head / (job.heads / job.groups);
    int64_t first = row * job.tokens * job.heads + head;
    int64_t first_group = row * job.tokens * job.groups + group;
    int64_t state_at =
        (row * job.heads + head) * job.size * job.head_size + lane;
    std::vector<float> steps(2 * static_cast<size_t>(job.tokens));
    float* decays = steps.data() + job.tokens;
    float rate = -std::exp(job.a_log[head]);
    for (int64_t t = 0; t < job.tokens; ++t) {
      float x = job.dt[first + t * job.heads] + job.dt_bias[head];
      // softplus
      float step = std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x)));
      step = std::min(std::max(step, job.lowest), job.highest);
      steps[t] = step;
      decays[t] = std::exp(step * rate);
    }
    ScanTask task;
    task.x = job.x + first * job.head_size + lane;
    task.inputs = job.b + first_group * job.size;
    task.reads = job.c + first_group * job.size;
    task.steps = steps.data();
    task.decays = decays;
    task.skip = job.d[head];
    task.mask = job.mask ? job.mask + row * job.tokens : nullptr;
    task.state = job.state + state_at;
    task.out = job.out + first * job.head_size + lane;
    task.tokens = job.tokens;
    task.size = job.size;
    task.lanes = std::min(kLanesPerTask, job.head_size - lane);
    task.x_stride = job.heads * job.head_size;
    task.group_stride = job.groups * job.size;
    task.step_stride = 1;
    task.state_stride = job.head_size;
    copy_lanes(
        job.old_state + state_at,
        task.state,
        job.size,
        job.head_size,
        task.lanes);
    kernels.scan(task);
  }

  float lowest_;
  float highest_;
};

}  // namespace

bool covers_ssm_scan(const SsmInputs& in, const Selection& selection) {
  auto fits = [](const mx::array& a) { return a.dtype() == mx::float32; };
  return selection.has_cpu_kernels() && fits(in.x) && fits(in.b) &&
      fits(in.c) && fits(in.d) && fits(in.a_log) && fits(in.dt) &&
      fits(in.dt_bias) && (!in.state || fits(*in.state)) &&
      (!in.lengths || in.mask);
}

StatefulResult cpu_ssm_scan(const SsmInputs& in, const Selection& selection) {
  mx::Shape shape{in.x.shape(0), in.x.shape(2), in.b.shape(3), in.x.shape(3)};
  mx::array state =
      in.state ? mx::swapaxes(*in.state, 2, 3) : mx::zeros(shape, mx::float32);
  Arrays inputs;
  for (const auto& a :
       {in.x, in.b, in.c, in.d, in.dt, in.dt_bias, in.a_log, state}) {
    inputs.push_back(in_order(a));
  }
  if (in.mask) {
    inputs.push_back(in_order(*in.mask));
  }
  auto result = make_stateful(
      in.x.shape(),
      shape,
      std::make_shared<CpuScan>(in.dt_lowest, in.dt_highest, selection),
      inputs);
  return {result.out, mx::swapaxes(result.state, 2, 3)};
}

}  // namespace mlxx::kernels
