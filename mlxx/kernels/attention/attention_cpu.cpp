#include "mlxx/kernels/attention/attention_cpu.h"

#include "mlxx/base/error.h"
#include "mlxx/kernels/cpu_primitive.h"
#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

// Inputs: queries [B, H, L, D], keys and values [B, K, S, D], any strides but
// the last.
class CpuAttention : public CpuPrimitive {
 public:
  CpuAttention(float scale, bool causal, const Selection& selection)
      : CpuPrimitive(
            "CpuAttention",
            [scale, causal](const std::vector<mx::array>& inputs) {
              return std::vector{mx::fast::scaled_dot_product_attention(
                  inputs[0],
                  inputs[1],
                  inputs[2],
                  scale,
                  causal ? "causal" : "")};
            }),
        scale_(scale),
        causal_(causal),
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
        out.data<float>(),
        scale_,
        causal_};
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

  struct Job {
    View queries;
    View keys;
    View values;
    float* out;
    float scale;
    bool causal;

    // Later queries of a prompt see more keys: dealing rows out one by one
    // keeps the threads even.
    void run(const RowKernels& kernels, int thread, int threads) const {
      int64_t heads = queries.shape[1];
      int64_t length = queries.shape[2];
      int64_t size = queries.shape[3];
      int64_t kv_heads = keys.shape[1];
      int64_t total = keys.shape[2];
      std::vector<float> scores(total + kAttentionSizeStep);
      int64_t rows = queries.shape[0] * heads * length;
      for (int64_t row = thread; row < rows; row += threads) {
        int64_t token = row % length;
        int64_t head = row / length % heads;
        int64_t batch = row / length / heads;
        int64_t kv_head = head / (heads / kv_heads);
        kernels.attend(
            {.query = queries.at(batch, head, token),
             .keys = keys.at(batch, kv_head, 0),
             .values = values.at(batch, kv_head, 0),
             .key_stride = keys.strides[2],
             .value_stride = values.strides[2],
             .length = causal ? total - length + token + 1 : total,
             .size = size,
             .scale = scale,
             .scores = scores.data(),
             .out = out + ((batch * length + token) * heads + head) * size});
      }
    }
  };

  float scale_;
  bool causal_;
  Selection selection_;
};

}  // namespace

bool attention_cpu_covers(
    const mx::array& queries,
    const DenseView& view,
    const AttentionMask& mask,
    const Selection& selection) {
  auto is_covered = [](const mx::array& a) {
    return a.dtype() == mx::float32 && a.ndim() == 4 && a.size() > 0 &&
        a.shape(3) % kAttentionSizeStep == 0;
  };
  return selection.has_cpu_kernels() && !mask.array && is_covered(queries) &&
      is_covered(view.keys) && is_covered(view.values) &&
      queries.shape(3) == view.keys.shape(3) &&
      queries.shape(3) == view.values.shape(3) &&
      queries.shape(1) % view.keys.shape(1) == 0 &&
      queries.shape(2) <= view.keys.shape(2);
}

mx::array attention_cpu(
    const mx::array& queries,
    const DenseView& view,
    float scale,
    bool causal,
    const Selection& selection) {
  return make_lazy(
      queries.shape(),
      std::make_shared<CpuAttention>(scale, causal, selection),
      {queries, view.keys, view.values});
}

}  // namespace mlxx::kernels
