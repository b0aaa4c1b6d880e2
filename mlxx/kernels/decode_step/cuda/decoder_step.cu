#include "mlxx/kernels/decode_step/cuda/decoder_step.cuh"

#include <algorithm>

#include "mlxx/kernels/decode_step/cuda/attention_launch.cuh"
#include "mlxx/kernels/decode_step/cuda/product_launch.cuh"
#include "mlxx/kernels/decode_step/cuda/step_rows.cuh"

namespace mlxx::kernels::cuda {

namespace {

constexpr int kNarrow = 8;  // rows of a product that reads W for few rows
// Bytes of a block's shared memory that wide products may need; on devices with
// less, more rows are multiplied 8 at a time.
constexpr int kWideShared = 184 * 1024;

int padded(int columns) {
  // Two tiles: a group of 128 columns is.
  return (columns + 2 * kTileColumns - 1) / (2 * kTileColumns) *
      (2 * kTileColumns);
}
int tiles_of(const PackedMatrix& m) {
  return m.group == 128 ? padded(m.columns) / kTileColumns
                        : (m.columns + kTileColumns - 1) / kTileColumns;
}
int groups_of(int longest) {
  return longest / kGroupTokens + 1;
}

// Room for kMaxRows rows, whatever is run: what lies where never changes, so
// that padding stays finite numbers.
struct Workspace {
  float* stream;
  bf16* x;
  bf16* qkv;
  bf16* attended;
  bf16* inner;
  float* branch;
  float* squares;
  float2* turns;
  float* group_sums;
  float2* group_states;
  size_t bytes;
};

int turns_of(const Decoder& d) {
  int turns = 0;
  for (const RotationTable& table : d.rotations) {
    turns += table.dims / 2;
  }
  return turns;
}

Workspace place(const Decoder& d, void* memory, int max_rows, int longest) {
  char* base = static_cast<char*>(memory);
  size_t at = 0;
  auto take = [&](auto*& pointer, size_t count) {
    using T = std::remove_reference_t<decltype(*pointer)>;
    pointer = reinterpret_cast<T*>(base + at);
    at += (count * sizeof(T) + 255) / 256 * 256;
  };
  size_t rows = kMaxRows;
  int inner = 0;
  for (const DecoderLayer& layer : d.layers) {
    inner = std::max(inner, layer.down.matrix.columns);
  }
  Workspace w;
  take(w.stream, rows * d.hidden_size);
  take(w.x, rows * padded(d.hidden_size));
  take(w.qkv, rows * (d.heads + 2 * d.kv_heads) * d.head_size);
  take(w.attended, rows * padded(d.heads * d.head_size));
  take(w.inner, rows * padded(inner));
  take(w.branch, rows * d.hidden_size);
  take(w.squares, rows * ((d.hidden_size + 15) / 16));
  take(w.turns, rows * turns_of(d));
  size_t groups = groups_of(longest);
  if (groups > 1) {
    take(w.group_states, groups * max_rows * d.heads);
    take(w.group_sums, groups * max_rows * d.heads * d.head_size);
  } else {
    w.group_states = nullptr;
    w.group_sums = nullptr;
  }
  w.bytes = at;
  return w;
}

class StepLauncher {
 public:
  StepLauncher(
      const Decoder& decoder,
      const StepInput& input,
      const StepTuning& tuning,
      void* workspace,
      float* logits,
      bool hopper,
      bool wide,
      Stream stream)
      : d_(decoder),
        in_(input),
        tuning_(tuning),
        memory_(place(decoder, workspace, input.rows, input.longest)),
        logits_(logits),
        hopper_(hopper),
        stream_(stream) {
    if (input.rows > kNarrow && wide && !input.deterministic) {
      cores_ = input.rows <= 16 ? 2 : input.rows <= 32 ? 4 : 8;
    }
    x_ = rows_of(memory_.x, d_.hidden_size);
  }

  Status run() {
    embed();
    for (size_t i = 0; i < d_.layers.size(); i++) {
      const Norm& next = i + 1 < d_.layers.size()
          ? d_.layers[i + 1].before_attention
          : d_.final_norm;
      run_layer(static_cast<int>(i), next);
    }
    if (tuning_.products) {
      Product p = product_of(d_.head);
      p.into = Into::floats;
      p.floats = logits_;
      p.multiplier = d_.logits_multiplier;
      p.softcap = d_.final_softcap;
      multiply(p, d_.head);
    }
    return status_;
  }

 private:
  Rows rows_of(bf16* data, int columns) const {
    return {data, padded(columns), cores_};
  }
  void check(Status status) {
    if (status_ == cudaSuccess) {
      status_ = status;
    }
  }

  // What reads x next finds it times `norm`'s gain, with its squares, or
  // normed.
  void set_input(const Norm& norm) {
    folded_ = norm.kind == Norm::Kind::rms ? &norm : nullptr;
  }

  void embed() {
    const Norm& norm = d_.layers.front().before_attention;
    set_input(norm);
    Embed p;
    p.tokens = in_.tokens;
    p.lengths = in_.lengths;
    p.table = d_.embedding;
    p.tiles = tiles_of(d_.embedding);
    p.factor = d_.embedding_multiplier;
    p.stream = memory_.stream;
    p.gain = folded_ ? norm.weight : nullptr;
    p.y = x_;
    p.squares = memory_.squares;
    p.rotation_count = static_cast<int>(d_.rotations.size());
    std::copy(d_.rotations.begin(), d_.rotations.end(), p.rotations);
    p.turns = memory_.turns;
    p.turns_stride = turns_of(d_);
    check(launch_embed(p, in_.rows, hopper_, stream_));
    if (!folded_) {
      norm_rows(nullptr, {}, 1, norm);
    }
  }

  void norm_rows(
      const float* branch,
      const Norm& after,
      float multiplier,
      const Norm& before) {
    NormRows p;
    p.branch = branch;
    p.after = after;
    p.multiplier = multiplier;
    p.stream = memory_.stream;
    p.before = before;
    p.y = x_;
    p.size = d_.hidden_size;
    check(launch_norm_rows(p, in_.rows, hopper_, stream_));
  }

  // Reads x.
  Product product_of(const Linear& linear) const {
    Product p;
    p.x = x_;
    p.rows = in_.rows;
    p.codes = static_cast<const uint4*>(linear.matrix.codes);
    p.scales = linear.matrix.scales;
    p.out = linear.matrix.rows;
    p.strips = (p.out + 15) / 16;
    p.tiles = tiles_of(linear.matrix);
    p.bias = linear.bias;
    if (folded_) {
      p.squares = memory_.squares;
      p.squares_count = (d_.hidden_size + 15) / 16;
      p.inverse_size = 1.f / d_.hidden_size;
      p.eps = folded_->eps;
    }
    return p;
  }

  void multiply(Product p, const Linear& linear) {
    const PackedMatrix& m = linear.matrix;
    ProductShape shape = product_shape(m.format, p.strips, p.tiles, hopper_);
    int kind = p.tiles > 128 ? 2 : p.strips > 1000 ? 3 : p.strips > 320 ? 0 : 1;
    if (tuning_.shapes[kind] >= 0) {
      shape.rows = static_cast<RowsShape>(tuning_.shapes[kind]);
    }
    if (tuning_.ranks > 0) {
      shape.ranks = std::min(shape.ranks, tuning_.ranks);
    }
    if (cores_ != 0 || in_.rows <= kNarrow) {
      check(launch_product(p, m.format, m.group, shape, hopper_, stream_));
      return;
    }
    // The same kernel as for few rows, so that bits are the same.
    for (int from = 0; from < in_.rows; from += kNarrow) {
      Product part = p;
      part.rows = std::min(kNarrow, in_.rows - from);
      part.x.data += static_cast<size_t>(from) * p.x.stride;
      auto advance = [&](auto*& pointer, int columns) {
        if (pointer) {
          pointer += static_cast<size_t>(from) * columns;
        }
      };
      advance(part.y.data, p.y.stride);
      advance(part.squares, p.squares_count);
      advance(part.squares_out, p.strips);
      advance(part.stream, p.out);
      advance(part.floats, p.out);
      check(launch_product(part, m.format, m.group, shape, hopper_, stream_));
    }
  }

  // Adds a product to the stream and makes what reads it next its input.
  void give(
      Product p,
      const Linear& linear,
      float multiplier,
      const Norm& after,
      const Norm* next) {
    if (after.kind == Norm::Kind::none &&
        (!next || next->kind == Norm::Kind::rms)) {
      p.into = Into::residual;
      p.stream = memory_.stream;
      p.multiplier = multiplier;
      if (next) {
        p.gain = next->weight;
        p.y = x_;
        p.squares_out = memory_.squares;
      }
      multiply(p, linear);
    } else {
      p.into = Into::floats;
      p.floats = memory_.branch;
      multiply(p, linear);
      norm_rows(memory_.branch, after, multiplier, *next);
      folded_ = nullptr;
      return;
    }
    if (next) {
      set_input(*next);
    }
  }

  static Product without_norm(Product p, Rows x) {
    p.squares = nullptr;
    p.x = x;
    return p;
  }

  void project(const Linear& linear, int first) {
    Product p = product_of(linear);
    p.into = Into::rows;
    int columns = (d_.heads + 2 * d_.kv_heads) * d_.head_size;
    p.y = {memory_.qkv + first, columns, 0};
    multiply(p, linear);
  }

  void attend(int index) {
    const DecoderLayer& layer = d_.layers[index];
    Attention p;
    p.qkv = memory_.qkv;
    p.blocks = in_.blocks;
    p.blocks_stride = in_.blocks_stride;
    p.lengths = in_.lengths;
    p.keys_at = kv_block_bytes(d_) / d_.layers.size() * index;
    p.heads = d_.heads;
    p.kv_heads = d_.kv_heads;
    p.turns_stride = turns_of(d_);
    if (layer.rotation >= 0) {
      p.turns = memory_.turns;
      for (int i = 0; i < layer.rotation; i++) {
        p.turns += d_.rotations[i].dims / 2;
      }
      p.rotated = d_.rotations[layer.rotation].dims;
      p.pairs = d_.rotations[layer.rotation].pairs;
    }
    p.q_norm = layer.q_norm;
    p.k_norm = layer.k_norm;
    p.query_beta = layer.query_beta;
    p.query_original_length = std::max(1, layer.query_original_length);
    p.scale = layer.attention_scale;
    p.softcap = layer.softcap;
    p.sinks = layer.sinks;
    p.window = layer.window;
    p.out = rows_of(memory_.attended, d_.heads * d_.head_size);
    p.groups = groups_of(in_.longest);
    p.group_sums = memory_.group_sums;
    p.group_states = memory_.group_states;
    if (hopper_) {
      p.splits = in_.rows <= kNarrow || in_.deterministic ? tuning_.few_splits
                                                          : tuning_.many_splits;
    }
    check(launch_attention(p, d_.head_size, in_.rows, hopper_, stream_));
  }

  void run_layer(int index, const Norm& next) {
    const DecoderLayer& layer = d_.layers[index];
    if (tuning_.products) {
      if (layer.qkv) {
        project(layer.qkv, 0);
      } else {
        int queries = d_.heads * d_.head_size;
        project(layer.q, 0);
        project(layer.k, queries);
        project(layer.v, queries + d_.kv_heads * d_.head_size);
      }
    }
    if (tuning_.attention) {
      attend(index);
    }
    if (!tuning_.products) {
      return;
    }
    auto give_attended = [&](const Norm* norm) {
      Product p = without_norm(
          product_of(layer.o),
          rows_of(memory_.attended, d_.heads * d_.head_size));
      give(p, layer.o, layer.residual_multiplier, layer.after_attention, norm);
    };
    if (!layer.gate_up) {
      give_attended(&next);
      return;
    }
    if (!layer.parallel) {
      give_attended(&layer.before_mlp);
    }
    Rows inner = rows_of(memory_.inner, layer.down.matrix.columns);
    Product p = product_of(layer.gate_up);
    p.into = Into::activation;
    p.activation = layer.activation;
    p.gated = layer.gated;
    p.y = inner;
    multiply(p, layer.gate_up);
    if (layer.parallel) {
      give_attended(nullptr);
    }
    give(
        without_norm(product_of(layer.down), inner),
        layer.down,
        layer.residual_multiplier,
        layer.after_mlp,
        &next);
  }

  const Decoder& d_;
  const StepInput& in_;
  const StepTuning& tuning_;
  Workspace memory_;
  float* logits_;
  bool hopper_;
  Stream stream_;
  int cores_ = 0;  // of 8 rows; 0: rows one after another
  Rows x_;
  const Norm* folded_ = nullptr;
  Status status_ = cudaSuccess;
};

}  // namespace

size_t workspace_bytes(const Decoder& decoder, int max_rows, int longest) {
  return place(decoder, nullptr, max_rows, longest).bytes;
}

Status launch_tuned_step(
    const Decoder& decoder,
    const StepInput& input,
    const StepTuning& tuning,
    void* workspace,
    float* logits,
    Stream stream) {
  if (input.rows < 1 || input.rows > kMaxRows || input.longest < 0) {
    return cudaErrorInvalidValue;
  }
  int device = 0;
  int major = 0;
  int shared = 0;
  Status status = cudaGetDevice(&device);
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(
        &major,
        cudaDevAttrComputeCapabilityMajor,
        device);
  }
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(
        &shared,
        cudaDevAttrMaxSharedMemoryPerBlockOptin,
        device);
  }
  if (status != cudaSuccess) {
    return status;
  }
  return StepLauncher(
             decoder,
             input,
             tuning,
             workspace,
             logits,
             major >= 9,
             shared >= kWideShared,
             stream)
      .run();
}

Status launch_step(
    const Decoder& decoder,
    const StepInput& input,
    void* workspace,
    float* logits,
    Stream stream) {
  return launch_tuned_step(decoder, input, {}, workspace, logits, stream);
}

}  // namespace mlxx::kernels::cuda
