#include "mlxx/kernels/attention/attention_cpu.h"

#include <algorithm>
#include <limits>

#include "mlxx/base/error.h"
#include "mlxx/kernels/cpu_primitive.h"
#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

// Which arrays there are beside queries, keys and values; no more of them is
// kept.
struct Form {
  float scale;
  float softcap;
  bool causal;
  bool masked;
  bool sinks;

  AttentionOptions options(const std::vector<mx::array>& inputs) const {
    AttentionOptions options{
        .scale = scale,
        .mask = {causal ? "causal" : ""},
        .softcap = softcap};
    size_t next = 3;
    if (masked) {
      options.mask.array = inputs[next++];
    }
    if (sinks) {
      options.sinks = inputs[next];
    }
    return options;
  }
};

// Inputs: queries [B, H, L, D], keys and values [B, K, S, D], any strides but
// the last; a mask [B, H, L, S] of booleans or float32, if there is one; sinks
// [H] in a row, if there are any.
class CpuAttention : public CpuPrimitive {
 public:
  CpuAttention(const Form& form, const Selection& selection)
      : CpuPrimitive(
            "CpuAttention",
            [form](const std::vector<mx::array>& inputs) {
              return std::vector{plain_attention(
                  inputs[0],
                  inputs[1],
                  inputs[2],
                  form.options(inputs))};
            }),
        form_(form),
        selection_(selection) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    // Laid out as [B, L, H, D], so that joining the heads moves nothing.
    int64_t heads = out.shape(1);
    int64_t length = out.shape(2);
    int64_t size = out.shape(3);
    bool in_order = heads == 1 || length == 1;
    out.set_data(
        mx::allocator::malloc(out.nbytes()),
        out.size(),
        {length * heads * size, size, heads * size, 1},
        {.contiguous = true,
         .row_contiguous = in_order,
         .col_contiguous = out.size() == 1});
    Job job{
        view_of(inputs[0]),
        view_of(inputs[1]),
        view_of(inputs[2]),
        {},
        nullptr,
        out.data<float>(),
        form_};
    size_t next = 3;
    if (form_.masked) {
      job.mask = mask_of(inputs[next++]);
    }
    if (form_.sinks) {
      job.sinks = inputs[next].data<float>();
    }
    dispatch([job, selection = selection_] {
      selection.threads->run([&](int thread) {
        job.run(
            row_kernels(selection.instruction_set),
            thread,
            selection.threads->size());
      });
    });
  }

 private:
  struct View {
    const float* data;
    int64_t shape[4];
    int64_t strides[4];

    const float* at(int64_t b, int64_t h, int64_t t) const {
      return data + b * strides[0] + h * strides[1] + t * strides[2];
    }
  };

  // Strides are known once an array is evaluated. Heads must be rows of
  // consecutive numbers, as projections and caches make them.
  static View view_of(const mx::array& a) {
    if (a.strides(3) != 1) {
      fail(
          ErrorKind::internal,
          "attention",
          "the last axis has stride {}",
          a.strides(3));
    }
    View view{a.data<float>(), {}, {}};
    for (int i = 0; i < 4; ++i) {
      view.shape[i] = a.shape(i);
      view.strides[i] = a.strides(i);
    }
    return view;
  }

  // Of any strides, such as those of a broadcast.
  struct Mask {
    const bool* seen = nullptr;  // or
    const float* added = nullptr;
    int64_t strides[4] = {};

    // What row (b, h, t) adds to the scores. Hidden keys get the lowest number,
    // so that a query that sees none weighs all alike.
    void copy_row(int64_t b, int64_t h, int64_t t, int64_t length, float* to)
        const {
      int64_t at = b * strides[0] + h * strides[1] + t * strides[2];
      for (int64_t j = 0; j < length; ++j, at += strides[3]) {
        to[j] = added  ? added[at]
            : seen[at] ? 0
                       : std::numeric_limits<float>::lowest();
      }
    }
  };
  static Mask mask_of(const mx::array& a) {
    Mask mask;
    if (a.dtype() == mx::bool_) {
      mask.seen = a.data<bool>();
    } else {
      mask.added = a.data<float>();
    }
    std::copy_n(a.strides().begin(), 4, mask.strides);
    return mask;
  }

  struct Job {
    View queries;
    View keys;
    View values;
    Mask mask;
    const float* sinks;
    float* out;
    Form form;

    // Later queries of a prompt see more keys: dealing rows out one by one
    // keeps the threads even.
    void run(const RowKernels& kernels, int thread, int threads) const {
      int64_t heads = queries.shape[1];
      int64_t length = queries.shape[2];
      int64_t size = queries.shape[3];
      int64_t kv_heads = keys.shape[1];
      int64_t total = keys.shape[2];
      std::vector<float> scores(total + kAttentionSizeStep);
      std::vector<float> added(form.masked ? total : 0);
      int64_t rows = queries.shape[0] * heads * length;
      for (int64_t row = thread; row < rows; row += threads) {
        int64_t token = row % length;
        int64_t head = row / length % heads;
        int64_t batch = row / length / heads;
        int64_t kv_head = head / (heads / kv_heads);
        if (form.masked) {
          mask.copy_row(batch, head, token, total, added.data());
        }
        kernels.attend(
            {.query = queries.at(batch, head, token),
             .keys = keys.at(batch, kv_head, 0),
             .values = values.at(batch, kv_head, 0),
             .key_stride = keys.strides[2],
             .value_stride = values.strides[2],
             .length = form.causal ? total - length + token + 1 : total,
             .size = size,
             .scale = form.scale,
             .softcap = form.softcap,
             .added = form.masked ? added.data() : nullptr,
             .sink = sinks ? sinks + head : nullptr,
             .scores = scores.data(),
             .out = out + ((batch * length + token) * heads + head) * size});
      }
    }
  };

  Form form_;
  Selection selection_;
};

bool is_covered(const AttentionMask& mask) {
  return !mask.array || mask.array->dtype() == mx::bool_ ||
      mask.array->dtype() == mx::float32;
}

}  // namespace

bool attention_cpu_covers(
    const mx::array& queries,
    const DenseView& view,
    const AttentionOptions& options,
    const Selection& selection) {
  auto has_form = [](const mx::array& a) {
    return a.dtype() == mx::float32 && a.ndim() == 4 && a.size() > 0 &&
        a.shape(3) % kAttentionSizeStep == 0;
  };
  return selection.has_cpu_kernels() && is_covered(options.mask) &&
      has_form(queries) && has_form(view.keys) && has_form(view.values) &&
      queries.shape(3) == view.keys.shape(3) &&
      queries.shape(3) == view.values.shape(3) &&
      queries.shape(1) % view.keys.shape(1) == 0 &&
      queries.shape(2) <= view.keys.shape(2);
}

mx::array attention_cpu(
    const mx::array& queries,
    const DenseView& view,
    const AttentionOptions& options,
    const Selection& selection) {
  std::vector<mx::array> inputs{queries, view.keys, view.values};
  if (options.mask.array) {
    mx::Shape shape = queries.shape();
    shape.back() = view.keys.shape(2);
    inputs.push_back(mx::broadcast_to(*options.mask.array, shape));
  }
  if (options.sinks) {
    inputs.push_back(mx::contiguous(mx::astype(*options.sinks, mx::float32)));
  }
  Form form{
      options.scale,
      options.softcap,
      options.mask.mode == "causal",
      options.mask.array.has_value(),
      options.sinks.has_value()};
  return make_lazy(
      queries.shape(),
      std::make_shared<CpuAttention>(form, selection),
      std::move(inputs));
}

}  // namespace mlxx::kernels
