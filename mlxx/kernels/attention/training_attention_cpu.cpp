#include "mlxx/kernels/attention/training_attention_cpu.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "mlxx/base/error.h"
#include "mlxx/core/cpu_stream_primitive.h"
#include "mlxx/kernels/attention/attention_tile_job.h"
#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

struct Form {
  float scale;
  float softcap;
  bool sinks;
  std::vector<SeenTokens> seen;
  Selection selection;

  template <typename Piece>
  void run(int64_t count, const Piece& piece) const {
    std::atomic<int64_t> next = 0;
    selection.threads->run([&](int) {
      for (int64_t i = next++; i < count; i = next++) {
        piece(i);
      }
    });
  }
};

// Strides are known once an array is evaluated. Heads are rows of adjacent
// numbers, as projections make them.
HeadRows rows_of(const mx::array& a) {
  if (a.strides(3) != 1 && a.shape(3) > 1) {
    fail(
        ErrorKind::internal,
        "training attention",
        "the last axis has stride {}",
        a.strides(3));
  }
  return {a.data<float>(), {a.strides(0), a.strides(1), a.strides(2)}};
}

// [B, H, L, D] laid out as [B, L, H, D], so that joining heads moves nothing.
HeadResult allocate(mx::array& out) {
  int64_t heads = out.shape(1);
  int64_t length = out.shape(2);
  int64_t size = out.shape(3);
  out.set_data(
      mx::allocator::malloc(out.nbytes()),
      out.size(),
      {length * heads * size, size, heads * size, 1},
      {.contiguous = true,
       .row_contiguous = heads == 1 || length == 1,
       .col_contiguous = out.size() == 1});
  return {out.data<float>(), length, heads, size};
}

// What a kernel works in is an output that nobody reads: so it is MLX's memory,
// and a plan of it knows of it.
float* allocate_row(mx::array& out) {
  out.set_data(mx::allocator::malloc(out.nbytes()));
  return out.data<float>();
}

// Heads packed for a job.
class Packing {
 public:
  Packing(const Form& form, const AttentionTiles& tiles, int64_t padded)
      : form_(form), tiles_(tiles), padded_(padded) {}

  // [groups, padded, size], times `factor`, zero past the last token.
  void rows(const HeadRows& x, const mx::Shape& shape, float factor, float* to)
      const {
    int64_t size = shape[3];
    form_.run(int64_t{shape[0]} * shape[1], [&](int64_t group) {
      float* row = to + group * padded_ * size;
      for (int64_t t = 0; t < shape[2]; ++t, row += size) {
        tiles_.scale(
            x.at(group / shape[1], group % shape[1], t),
            factor,
            size,
            row);
      }
      std::memset(row, 0, (padded_ - shape[2]) * size * sizeof(float));
    });
  }
  // [groups, size, padded]
  void columns(const HeadRows& x, const mx::Shape& shape, float* to) const {
    int64_t size = shape[3];
    form_.run(int64_t{shape[0]} * shape[1], [&](int64_t group) {
      float* out = to + group * padded_ * size;
      tiles_.transpose(
          x.at(group / shape[1], group % shape[1], 0),
          x.strides[2],
          shape[2],
          size,
          out,
          padded_);
      for (int64_t c = 0; c < size; ++c) {
        std::memset(
            out + c * padded_ + shape[2],
            0,
            (padded_ - shape[2]) * sizeof(float));
      }
    });
  }

 private:
  const Form& form_;
  const AttentionTiles& tiles_;
  int64_t padded_;
};

int64_t padded_length(int64_t length) {
  return (length + kScoreTile - 1) / kScoreTile * kScoreTile;
}

AttentionTileJob
job_of(const Form& form, const mx::array& queries, const mx::array& keys) {
  AttentionTileJob job{};
  job.tiles = &attention_tiles(form.selection.instruction_set);
  job.seen = &form.seen;
  job.batch = queries.shape(0);
  job.heads = queries.shape(1);
  job.kv_heads = keys.shape(1);
  job.length = queries.shape(2);
  job.size = queries.shape(3);
  job.softcap = form.softcap;
  job.padded = padded_length(job.length);
  return job;
}

class CpuPrimitiveOfTexts : public CpuStreamPrimitive {
 public:
  CpuPrimitiveOfTexts(const char* name, std::shared_ptr<const Form> form)
      : CpuStreamPrimitive(name, mx::default_stream(mx::Device::cpu)),
        form_(std::move(form)) {}

 protected:
  std::shared_ptr<const Form> form_;
};

// Inputs: queries, keys, values, sinks if there are any, output, log-sums, the
// output's cotangent. Outputs: cotangents of the first three or four, and
// room.
class CpuTextAttentionGradient : public CpuPrimitiveOfTexts {
 public:
  explicit CpuTextAttentionGradient(std::shared_ptr<const Form> form)
      : CpuPrimitiveOfTexts("CpuTextAttentionGradient", std::move(form)) {}

  void eval_cpu(
      const std::vector<mx::array>& inputs,
      std::vector<mx::array>& outputs) override {
    size_t at = form_->sinks ? 4 : 3;
    AttentionTileJob job = job_of(*form_, inputs[0], inputs[1]);
    HeadRows queries = rows_of(inputs[0]);
    job.keys = rows_of(inputs[1]);
    job.values = rows_of(inputs[2]);
    job.sinks = form_->sinks ? inputs[3].data<float>() : nullptr;
    HeadRows out = rows_of(inputs[at]);
    // Only read here.
    job.log_sums = const_cast<float*>(inputs[at + 1].data<float>());
    job.change = rows_of(inputs[at + 2]);
    HeadResult d_queries = allocate(outputs[0]);
    HeadResult d_keys = allocate(outputs[1]);
    HeadResult d_values = allocate(outputs[2]);
    float* d_sinks = form_->sinks ? allocate_row(outputs[3]) : nullptr;
    float* deltas = allocate_row(outputs[at]);
    float* scaled = allocate_row(outputs[at + 1]);
    // Keys and values turned over, then queries and the cotangent.
    float* first_over = allocate_row(outputs[at + 2]);
    float* second_over = allocate_row(outputs[at + 3]);
    dispatch([=,
              form = form_,
              shape = inputs[0].shape(),
              kv_shape = inputs[1].shape()]() mutable {
      Packing packing(*form, *job.tiles, job.padded);
      packing.rows(queries, shape, form->scale, scaled);
      job.queries = scaled;
      find_deltas(*form, job, out, deltas);
      job.deltas = deltas;
      packing.columns(job.keys, kv_shape, first_over);
      packing.columns(job.values, kv_shape, second_over);
      job.keys_over = first_over;
      job.values_over = second_over;
      form->run(job.query_pieces(), [&](int64_t i) {
        job.differentiate_queries(i, form->scale, d_queries);
      });
      HeadRows packed{
          scaled,
          {job.heads * job.padded * job.size, job.padded * job.size, job.size}};
      packing.columns(packed, shape, first_over);
      packing.columns(job.change, shape, second_over);
      job.queries_over = first_over;
      job.change_over = second_over;
      form->run(job.key_pieces(), [&](int64_t i) {
        job.differentiate_keys(i, d_keys, d_values);
      });
      if (d_sinks) {
        differentiate_sinks(job, d_sinks);
      }
    });
  }

 private:
  static void find_deltas(
      const Form& form,
      const AttentionTileJob& job,
      const HeadRows& out,
      float* deltas) {
    form.run(job.batch * job.heads, [&](int64_t group) {
      int64_t b = group / job.heads;
      int64_t h = group % job.heads;
      float* to = deltas + group * job.padded;
      for (int64_t t = 0; t < job.length; ++t) {
        to[t] =
            job.tiles->dot(out.at(b, h, t), job.change.at(b, h, t), job.size);
      }
      std::fill(to + job.length, to + job.padded, 0.0f);
    });
  }

  // A sink's weight takes from what the output was.
  static void differentiate_sinks(const AttentionTileJob& job, float* d_sinks) {
    for (int64_t h = 0; h < job.heads; ++h) {
      double sum = 0;
      for (int64_t b = 0; b < job.batch; ++b) {
        int64_t at = (b * job.heads + h) * job.padded;
        for (int64_t t = 0; t < job.length; ++t) {
          sum -= std::exp(job.sinks[h] - job.log_sums[at + t]) *
              job.deltas[at + t];
        }
      }
      d_sinks[h] = static_cast<float>(sum);
    }
  }
};

// Inputs: queries, keys, values, sinks if there are any. Outputs: as the
// queries, log-sums [B, H, padded], and room.
class CpuTextAttention : public CpuPrimitiveOfTexts {
 public:
  explicit CpuTextAttention(std::shared_ptr<const Form> form)
      : CpuPrimitiveOfTexts("CpuTextAttention", std::move(form)) {}

  void eval_cpu(
      const std::vector<mx::array>& inputs,
      std::vector<mx::array>& outputs) override {
    AttentionTileJob job = job_of(*form_, inputs[0], inputs[1]);
    HeadRows queries = rows_of(inputs[0]);
    HeadRows keys = rows_of(inputs[1]);
    job.values = rows_of(inputs[2]);
    job.sinks = form_->sinks ? inputs[3].data<float>() : nullptr;
    HeadResult out = allocate(outputs[0]);
    job.log_sums = allocate_row(outputs[1]);
    float* scaled = allocate_row(outputs[2]);
    float* keys_over = allocate_row(outputs[3]);
    dispatch([=,
              form = form_,
              shape = inputs[0].shape(),
              kv_shape = inputs[1].shape()]() mutable {
      Packing packing(*form, *job.tiles, job.padded);
      packing.rows(queries, shape, form->scale, scaled);
      packing.columns(keys, kv_shape, keys_over);
      job.queries = scaled;
      job.keys_over = keys_over;
      std::memset(
          job.log_sums,
          0,
          job.batch * job.heads * job.padded * sizeof(float));
      form->run(job.query_pieces(), [&](int64_t i) { job.attend(i, out); });
    });
  }

  std::vector<mx::array> vjp(
      const std::vector<mx::array>& primals,
      const std::vector<mx::array>& cotangents,
      const std::vector<int>& argnums,
      const std::vector<mx::array>& outputs) override {
    std::vector<mx::array> inputs = primals;
    inputs.push_back(outputs[0]);
    inputs.push_back(outputs[1]);
    inputs.push_back(with_rows(cotangents[0]));
    std::vector<mx::Shape> shapes;
    for (const auto& primal : primals) {
      shapes.push_back(primal.shape());
    }
    const mx::Shape& rows = outputs[1].shape();
    shapes.push_back(rows);
    shapes.insert(
        shapes.end(),
        3,
        {rows[0], rows[1], rows[2], primals[0].shape(3)});
    auto all = mx::array::make_arrays(
        shapes,
        std::vector<mx::Dtype>(shapes.size(), mx::float32),
        std::make_shared<CpuTextAttentionGradient>(form_),
        inputs);
    std::vector<mx::array> wanted;
    for (int index : argnums) {
      wanted.push_back(all[index]);
    }
    return wanted;
  }

  // The last axis adjacent: the others may be in any order.
  static mx::array with_rows(const mx::array& x) {
    // Turned over from how a product leaves it, [B, L, H, D], and back: what
    // is laid out like that already is not copied.
    return mx::transpose(
        mx::contiguous(mx::transpose(x, {0, 2, 1, 3})),
        {0, 2, 1, 3});
  }
};

}  // namespace

bool training_attention_cpu_covers(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const Selection& selection) {
  auto has_form = [](const mx::array& a) {
    return a.dtype() == mx::float32 && a.size() > 0 &&
        a.shape(3) % kScoreColumns == 0;
  };
  return selection.has_cpu_kernels() && has_form(queries) && has_form(keys) &&
      has_form(values) && queries.shape(3) == values.shape(3);
}

mx::array training_attention_cpu(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const TrainingAttention& options,
    const Selection& selection) {
  auto form = std::make_shared<Form>(Form{
      options.scale,
      options.softcap,
      options.sinks.has_value(),
      seen_tokens(options.segments, options.window, queries.shape(2)),
      selection});
  std::vector<mx::array> inputs{
      CpuTextAttention::with_rows(queries),
      CpuTextAttention::with_rows(keys),
      CpuTextAttention::with_rows(values)};
  if (options.sinks) {
    inputs.push_back(mx::contiguous(mx::astype(*options.sinks, mx::float32)));
  }
  int padded = static_cast<int>(padded_length(queries.shape(2)));
  int rows = queries.shape(0);
  int heads = queries.shape(1);
  int size = queries.shape(3);
  std::vector<mx::Shape> shapes{
      queries.shape(),
      {rows, heads, padded},
      {rows, heads, padded, size},
      {rows, keys.shape(1), padded, size}};
  return mx::array::make_arrays(
      shapes,
      std::vector<mx::Dtype>(shapes.size(), mx::float32),
      std::make_shared<CpuTextAttention>(form),
      inputs)[0];
}

}  // namespace mlxx::kernels
