#include "mlxx/kernels/decode_step/cuda/attention_launch.cuh"
#include "mlxx/kernels/decode_step/cuda/step_rows.cuh"

namespace mlxx::kernels::cuda {

namespace {

std::string
why_not_matrix(const Linear& linear, const char* name, int rows, int columns) {
  const PackedMatrix& m = linear.matrix;
  std::string prefix = std::string("its ") + name;
  if (!m) {
    return prefix + " is missing";
  }
  if (m.rows != rows || m.columns != columns) {
    return prefix + " is [" + std::to_string(m.rows) + ", " +
        std::to_string(m.columns) + "], not [" + std::to_string(rows) + ", " +
        std::to_string(columns) + "]";
  }
  if (packed_size(m).codes == 0) {
    return prefix + " has a format or group that no kernel has";
  }
  return {};
}

std::string why_not_layer(const Decoder& d, const DecoderLayer& layer) {
  const int heads = d.heads * d.head_size;
  const int keys = d.kv_heads * d.head_size;
  std::string why;
  auto need =
      [&](const Linear& linear, const char* name, int rows, int columns) {
        if (why.empty()) {
          why = why_not_matrix(linear, name, rows, columns);
        }
      };
  if (layer.qkv) {
    need(
        layer.qkv,
        "queries, keys and values",
        heads + 2 * keys,
        d.hidden_size);
  } else {
    need(layer.q, "queries", heads, d.hidden_size);
    need(layer.k, "keys", keys, d.hidden_size);
    need(layer.v, "values", keys, d.hidden_size);
  }
  need(layer.o, "attention's output", d.hidden_size, heads);
  if (layer.gate_up || layer.down) {
    if (!layer.down) {
      return "a network lacks its last matrix";
    }
    int inner = layer.down.matrix.columns;
    need(
        layer.gate_up,
        "gate and up",
        layer.gated ? 2 * inner : inner,
        d.hidden_size);
    need(layer.down, "network's output", d.hidden_size, inner);
    if (layer.gated && inner % 8 != 0) {
      return "its network's size is not a multiple of 8";
    }
  }
  if (!why.empty()) {
    return why;
  }
  if (layer.rotation >= static_cast<int>(d.rotations.size())) {
    return "a layer's rotation is missing";
  }
  if (layer.parallel &&
      (layer.after_attention.kind != Norm::Kind::none ||
       (layer.before_mlp.kind != Norm::Kind::none &&
        layer.before_mlp.weight != layer.before_attention.weight))) {
    return "attention and network side by side have norms of their own";
  }
  return {};
}

bool is_folded(const Norm& norm) {
  return norm.kind == Norm::Kind::rms;
}

}  // namespace

std::string why_not_run(const Decoder& d) {
  if (d.head_size != 64 && d.head_size != 80 && d.head_size != 96 &&
      d.head_size != 128 && d.head_size != 256) {
    return "its heads have " + std::to_string(d.head_size) +
        " numbers, not 64, 80, 96, 128 or 256";
  }
  if (d.heads < 1 || d.kv_heads < 1 || d.heads % d.kv_heads != 0) {
    return "its heads are not a multiple of its key heads";
  }
  if (d.hidden_size < 8 || d.hidden_size % 8 != 0) {
    return "its hidden size is not a multiple of 8";
  }
  if (d.layers.empty()) {
    return "there is no layer";
  }
  if (d.rotations.size() > kMostRotations) {
    return "it has more than 4 tables of rotations";
  }
  for (const RotationTable& table : d.rotations) {
    if (table.dims < 0 || table.dims % 2 != 0 || table.dims > d.head_size) {
      return "a rotation is of " + std::to_string(table.dims) + " numbers";
    }
  }
  bool folded = is_folded(d.final_norm);
  for (const DecoderLayer& layer : d.layers) {
    std::string why = why_not_layer(d, layer);
    if (!why.empty()) {
      return why;
    }
    folded = folded && is_folded(layer.before_attention) &&
        (layer.parallel || is_folded(layer.before_mlp)) &&
        layer.after_attention.kind == Norm::Kind::none &&
        layer.after_mlp.kind == Norm::Kind::none;
  }
  constexpr int kMostNormed = 12288;  // of 48 KB of shared memory
  if (!folded && d.hidden_size > kMostNormed) {
    return "its hidden size exceeds " + std::to_string(kMostNormed);
  }
  if (d.embedding.columns != d.hidden_size ||
      packed_size(d.embedding).codes == 0) {
    return "its embedding is missing or of a format that no kernel has";
  }
  return why_not_matrix(d.head, "head", d.head.matrix.rows, d.hidden_size);
}

size_t kv_block_bytes(const Decoder& d) {
  return d.layers.size() * 2 * d.kv_heads * kKvBlockLength * d.head_size *
      sizeof(bf16);
}

}  // namespace mlxx::kernels::cuda
