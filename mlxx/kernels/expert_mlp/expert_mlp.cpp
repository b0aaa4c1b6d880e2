#include "mlxx/kernels/expert_mlp/expert_mlp.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "mlxx/kernels/activation/activation_cpu.h"
#include "mlxx/kernels/cpu_primitive.h"
#include "mlxx/kernels/cpu_variants.h"
#include "mlxx/kernels/expert_matmul/expert_panels.h"

namespace mlxx::kernels {
namespace {

constexpr float kAlpha = 1.702f;
constexpr float kLimit = 7.0f;
// Waking the threads costs more than adding up fewer tokens.
constexpr int64_t kFewTokens = 8;

std::shared_ptr<const PackedExperts> packed_experts(const Parameter& stack) {
  return std::dynamic_pointer_cast<const PackedExperts>(stack.packed());
}

struct Stacks {
  std::shared_ptr<const PackedExperts> gate;  // or null
  std::shared_ptr<const PackedExperts> up;
  std::shared_ptr<const PackedExperts> down;
};

mx::array clamped(const mx::array& gate, const mx::array& up) {
  mx::array g = mx::minimum(gate, mx::array(kLimit));
  mx::array u = mx::clip(up, mx::array(-kLimit), mx::array(kLimit));
  return mx::multiply(
      mx::add(u, mx::array(1.0f)),
      mx::multiply(g, mx::sigmoid(mx::multiply(mx::array(kAlpha), g))));
}

// What the kernel computes, for gradients. Inputs as the primitive's.
mx::array plain_mlp(
    const std::vector<mx::array>& inputs,
    const Stacks& stacks,
    ExpertActivation activation) {
  mx::array experts = mx::stop_gradient(inputs[1]);
  auto product = [&](const mx::array& x, const PackedExperts& stack, int bias) {
    mx::array y = mx::gather_mm(
        x,
        mx::swapaxes(stack.dequantize(), -1, -2),
        std::nullopt,
        experts);
    return inputs.size() > 3
        ? mx::add(y, mx::expand_dims(mx::take(inputs[bias], experts, 0), -2))
        : y;
  };
  mx::array x = mx::expand_dims(inputs[0], {-2, -3});
  mx::array inner = product(x, *stacks.up, 4);
  if (stacks.gate) {
    mx::array gate = product(x, *stacks.gate, 3);
    inner = activation.clamped
        ? clamped(gate, inner)
        : mx::multiply(activate(gate, activation.function), inner);
  } else {
    inner = activate(inner, activation.function);
  }
  mx::array y = mx::squeeze(product(inner, *stacks.down, 5), -2);
  return mx::sum(mx::multiply(y, mx::expand_dims(inputs[2], -1)), -2);
}

// Pointers that a job reads and writes.
struct Job {
  const float* x;          // [tokens, in]
  const int32_t* experts;  // [tokens, k]
  const float* weights;    // [tokens, k]
  const float* gate_bias;  // [experts, inner] or null
  const float* up_bias;
  const float* down_bias;  // [experts, in]
  float* y;                // [tokens, in]
  int64_t tokens;
  int64_t k;
};

void add_bias(float* tile, int64_t rows, const float* bias) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int lane = 0; lane < kLanes; ++lane) {
      tile[i * kLanes + lane] += bias[lane];
    }
  }
}

// inner[0..31] of a clamped gate, which is overwritten as up is.
void clamp_row(ActivationKernel silu, float* gate, float* up, float* inner) {
  for (int lane = 0; lane < kLanes; ++lane) {
    gate[lane] = kAlpha * std::min(gate[lane], kLimit);
    up[lane] = (std::clamp(up[lane], -kLimit, kLimit) + 1) / kAlpha;
  }
  silu(gate, up, kLanes, inner);
}

// One evaluation: routed rows lie in the order of their experts.
class Mixture {
 public:
  Mixture(
      const Job& job,
      const Stacks& stacks,
      ExpertActivation activation,
      const Selection& selection)
      : job_(job),
        gate_(stacks.gate ? stacks.gate->panels().get() : nullptr),
        up_(*stacks.up->panels()),
        down_(*stacks.down->panels()),
        clamped_(activation.clamped),
        activate_(activation_kernel(
            layer_kernels(selection.instruction_set),
            activation.clamped ? Activation::silu : activation.function)),
        selection_(selection),
        rows_(
            {job.experts, static_cast<size_t>(job.tokens * job.k)},
            up_.count()),
        scratch_(selection.threads->size()),
        inner_(rows_.order().size() * up_.out()),
        out_(rows_.order().size() * down_.out()) {}

  void run() {
    ThreadPool& threads = *selection_.threads;
    ProductKernels kernels = product_kernels(selection_);
    PreparedRows tokens(kernels);
    prepare(tokens, kernels, {gate_ ? gate_ : &up_, &up_}, [&](int64_t i) {
      return job_.x + rows_.order()[i] / job_.k * up_.in();
    });
    threads.run([&](int thread) { multiply_inner(tokens, thread); });
    PreparedRows inner(kernels);
    prepare(inner, kernels, {&down_}, [&](int64_t i) {
      return inner_.data() + i * down_.in();
    });
    threads.run([&](int thread) { multiply_out(inner, thread); });
    add_up();
  }

 private:
  struct Scratch {
    PanelScratch panels;
    std::vector<float> gate;
    std::vector<float> up;
  };

  void prepare(
      PreparedRows& prepared,
      const ProductKernels& kernels,
      std::initializer_list<const ExpertPanels*> stacks,
      const std::function<const float*(int64_t)>& row) {
    PreparedRows::Needs needs;
    int64_t width = 0;
    for (const auto* stack : stacks) {
      width = stack->in();
      for (const auto& group : rows_.groups()) {
        needs.add(stack->expert(group.expert).layout(), kernels);
      }
    }
    prepared.start(static_cast<int64_t>(rows_.order().size()), width, needs);
    prepare_rows(prepared, rows_, *selection_.threads, row);
  }

  static void multiply(
      const PanelMatrix& matrix,
      int64_t panel,
      const PreparedRows& prepared,
      const RowGroups::Group& group,
      const float* biases,
      PanelScratch& scratch,
      float* tile) {
    ActivationRows rows =
        rows_of(prepared.view(matrix.layout()), group.first, group.count);
    matrix.multiply_panel(panel, rows, scratch, tile);
    if (biases) {
      int64_t at = int64_t{group.expert} * matrix.out() + panel * kLanes;
      add_bias(tile, group.count, biases + at);
    }
  }

  void multiply_inner(const PreparedRows& tokens, int thread) {
    Scratch& scratch = scratch_[thread];
    scratch.gate.resize(rows_.most() * kLanes);
    scratch.up.resize(rows_.most() * kLanes);
    float* gate = scratch.gate.data();
    float* up = scratch.up.data();
    auto tile_of = [&](const ExpertPanels& stack,
                       int64_t panel,
                       const RowGroups::Group& group,
                       const float* biases,
                       float* tile) {
      const PanelMatrix& matrix = stack.expert(group.expert);
      multiply(matrix, panel, tokens, group, biases, scratch.panels, tile);
    };
    auto work = [&](const RowGroups::Group& group, int64_t from, int64_t to) {
      for (int64_t p = from; p < to; ++p) {
        tile_of(up_, p, group, job_.up_bias, up);
        if (gate_) {
          tile_of(*gate_, p, group, job_.gate_bias, gate);
        }
        for (int64_t i = 0; i < group.count; ++i) {
          meet(
              gate + i * kLanes,
              up + i * kLanes,
              inner_.data() + (group.first + i) * up_.out() + p * kLanes);
        }
      }
    };
    for_panels_of_thread(
        rows_,
        up_.expert(0).panels(),
        *selection_.threads,
        thread,
        work);
  }

  void meet(float* gate, float* up, float* inner) const {
    if (clamped_) {
      clamp_row(activate_, gate, up, inner);
    } else if (gate_) {
      activate_(gate, up, kLanes, inner);
    } else {
      activate_(up, nullptr, kLanes, inner);
    }
  }

  void multiply_out(const PreparedRows& inner, int thread) {
    Scratch& scratch = scratch_[thread];
    scratch.gate.resize(rows_.most() * kLanes);
    auto work = [&](const RowGroups::Group& group, int64_t from, int64_t to) {
      for (int64_t p = from; p < to; ++p) {
        float* tile = scratch.gate.data();
        multiply(
            down_.expert(group.expert),
            p,
            inner,
            group,
            job_.down_bias,
            scratch.panels,
            tile);
        for (int64_t i = 0; i < group.count; ++i) {
          std::copy_n(
              tile + i * kLanes,
              kLanes,
              out_.data() + (group.first + i) * down_.out() + p * kLanes);
        }
      }
    };
    for_panels_of_thread(
        rows_,
        down_.expert(0).panels(),
        *selection_.threads,
        thread,
        work);
  }

  // A token's experts in the order in which they were given.
  void add_up() {
    int64_t width = down_.out();
    std::vector<int64_t> places(job_.tokens * job_.k, -1);
    for (size_t i = 0; i < rows_.order().size(); ++i) {
      places[rows_.order()[i]] = static_cast<int64_t>(i);
    }
    for_each_row_range(
        selection_,
        job_.tokens,
        kFewTokens,
        [&](size_t begin, size_t end) {
          for (size_t token = begin; token < end; ++token) {
            float* y = job_.y + token * width;
            std::fill_n(y, width, 0.0f);
            for (int64_t j = 0; j < job_.k; ++j) {
              int64_t route = static_cast<int64_t>(token) * job_.k + j;
              add_route(places[route], job_.weights[route], y);
            }
          }
        });
  }

  void add_route(int64_t place, float weight, float* y) const {
    int64_t width = down_.out();
    if (place < 0) {
      std::fill_n(y, width, std::numeric_limits<float>::quiet_NaN());
      return;
    }
    const float* out = out_.data() + place * width;
    for (int64_t i = 0; i < width; ++i) {
      y[i] += weight * out[i];
    }
  }

  const Job& job_;
  const ExpertPanels* gate_;  // or null
  const ExpertPanels& up_;
  const ExpertPanels& down_;
  bool clamped_;
  ActivationKernel activate_;
  const Selection& selection_;
  RowGroups rows_;
  std::vector<Scratch> scratch_;
  std::vector<float> inner_;  // [routed rows, inner]
  std::vector<float> out_;    // [routed rows, in]
};

// Inputs, all row-contiguous: x [..., in] and weights [..., k] float32,
// experts [..., k] int32 (as inputs 0, 2, 1); biases of gate, up and down
// float32, if there are any.
class ExpertMlp : public CpuPrimitive {
 public:
  ExpertMlp(
      const Stacks& stacks,
      ExpertActivation activation,
      const Selection& selection)
      : CpuPrimitive(
            "ExpertMlp",
            [stacks, activation](const std::vector<mx::array>& inputs) {
              return std::vector{plain_mlp(inputs, stacks, activation)};
            }),
        stacks_(stacks),
        activation_(activation),
        selection_(selection) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    out.set_data(mx::allocator::malloc(out.nbytes()));
    auto bias = [&](size_t index) {
      return inputs.size() > 3 ? inputs[index].data<float>() : nullptr;
    };
    int64_t k = inputs[1].shape(-1);
    Job job{
        inputs[0].data<float>(),
        inputs[1].data<int32_t>(),
        inputs[2].data<float>(),
        bias(3),
        bias(4),
        bias(5),
        out.data<float>(),
        static_cast<int64_t>(inputs[1].size()) / k,
        k};
    dispatch([=,
              stacks = stacks_,
              activation = activation_,
              selection = selection_] {
      Mixture(job, stacks, activation, selection).run();
    });
  }

 private:
  Stacks stacks_;
  ExpertActivation activation_;
  Selection selection_;
};

mx::array row_contiguous(const mx::array& a, mx::Dtype dtype) {
  return mx::contiguous(mx::astype(a, dtype));
}

}  // namespace

bool expert_mlp_covers(
    const ExpertMlpWeights& weights,
    const Selection& selection) {
  if (!selection.has_cpu_kernels()) {
    return false;
  }
  // Whole panels, so that no lane has to be cut off or has no bias.
  auto covers = [](const Parameter& stack) {
    auto packed = packed_experts(stack);
    return packed && packed->panels()->out() % kLanes == 0;
  };
  return (!weights.gate || covers(*weights.gate)) && covers(*weights.up) &&
      covers(*weights.down);
}

mx::array expert_mlp(
    const mx::array& x,
    const mx::array& experts,
    const mx::array& weights,
    const ExpertMlpWeights& stacks,
    ExpertActivation activation,
    const Selection& selection) {
  std::vector<mx::array> inputs = {
      row_contiguous(x, mx::float32),
      row_contiguous(experts, mx::int32),
      row_contiguous(weights, mx::float32)};
  if (stacks.up_bias) {
    // Without a gate, whose place in the inputs is up's, unread.
    const Parameter* gate_bias =
        stacks.gate ? stacks.gate_bias : stacks.up_bias;
    for (const auto* bias : {gate_bias, stacks.up_bias, stacks.down_bias}) {
      inputs.push_back(row_contiguous(bias->value(), mx::float32));
    }
  }
  mx::array y = make_lazy(
      x.shape(),
      std::make_shared<ExpertMlp>(
          Stacks{
              stacks.gate ? packed_experts(*stacks.gate) : nullptr,
              packed_experts(*stacks.up),
              packed_experts(*stacks.down)},
          activation,
          selection),
      std::move(inputs));
  return mx::astype(y, x.dtype());
}

}  // namespace mlxx::kernels
