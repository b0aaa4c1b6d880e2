#pragma once

// A small random decoder on the device, and its step in float on the host, as
// the definitions in decoder_cuda.h have it.

#include <cmath>
#include <string>
#include <vector>

#include "tests/kernels/cuda/device_arrays.h"

namespace mlxx::kernels::cuda {

struct DecoderCase {
  std::string name = "llama";
  WeightFormat format = WeightFormat::affine4;
  int group = 64;
  int size = 256;
  int heads = 4;
  int kv_heads = 2;
  int head_size = 64;
  int inner = 384;
  int vocabulary = 515;
  int layers = 2;
  int rotated = -1;  // -1: all; 0: no table
  bool pairs = false;
  bool qk_norm = false;
  bool apart = false;  // q, k and v
  bool biases = false;
  int window = 0;  // of the second layer
  float softcap = 0;
  bool sinks = false;
  Norm::Kind norm = Norm::Kind::rms;
  bool after = false;
  bool parallel = false;
  bool gated = true;
  Activation activation = Activation::silu;
  float final_softcap = 0;
  float multiplier = 1;
  float query_beta = 0;
};

class TestDecoder {
 public:
  TestDecoder(Pool& pool, const DecoderCase& c, int blocks)
      : c_(c),
        pool_(pool),
        random_(static_cast<uint32_t>(c.name.size() * 77 + c.head_size)) {
    device.hidden_size = c.size;
    device.heads = c.heads;
    device.kv_heads = c.kv_heads;
    device.head_size = c.head_size;
    const int dims = c.rotated < 0 ? c.head_size : c.rotated;
    if (dims) {
      for (int i = 0; i < dims / 2; i++) {
        turns_.push_back(std::pow(10000., -2. * i / dims));
      }
      RotationTable table;
      table.per_position = pool.upload(turns_);
      table.dims = dims;
      table.scale = 1.1f;
      table.pairs = c.pairs;
      device.rotations = {table};
    }
    const int queries = c.heads * c.head_size;
    const int keys = c.kv_heads * c.head_size;
    for (int l = 0; l < c.layers; l++) {
      Layer h;
      DecoderLayer d;
      d.before_attention = norm(h.before_attention, c.norm);
      if (c.apart) {
        h.q = linear(d.q, {queries}, c.size);
        h.k = linear(d.k, {keys}, c.size);
        h.v = linear(d.v, {keys}, c.size);
      } else {
        h.qkv = linear(d.qkv, {queries, keys, keys}, c.size);
      }
      h.o = linear(d.o, {c.size}, queries);
      if (c.qk_norm) {
        h.q_norm = floats(c.head_size, 1, 0.3f);
        h.k_norm = floats(keys, 1, 0.3f);
        d.q_norm = {pool.upload(h.q_norm), 1e-6f, false};
        d.k_norm = {pool.upload(h.k_norm), 1e-6f, true};
      }
      d.rotation = dims ? 0 : -1;
      d.query_beta = c.query_beta;
      d.query_original_length = 100;
      d.attention_scale = 1.f / std::sqrt(static_cast<float>(c.head_size));
      d.softcap = c.softcap;
      if (c.sinks) {
        h.sinks = floats(c.heads, 0, 2);
        d.sinks = pool.upload(h.sinks);
      }
      d.window = l == 1 ? c.window : 0;
      if (c.after) {
        d.after_attention = norm(h.after_attention, Norm::Kind::rms);
        d.after_mlp = norm(h.after_mlp, Norm::Kind::rms);
      }
      d.parallel = c.parallel;
      if (!c.parallel) {
        d.before_mlp = norm(h.before_mlp, c.norm);
      }
      d.gated = c.gated;
      d.activation = c.activation;
      if (c.gated) {
        h.gate_up = linear(d.gate_up, {c.inner, c.inner}, c.size, true);
      } else {
        h.gate_up = linear(d.gate_up, {c.inner}, c.size);
      }
      h.down = linear(d.down, {c.size}, c.inner);
      d.residual_multiplier = c.multiplier;
      host_.push_back(std::move(h));
      device.layers.push_back(d);
    }
    Linear embedding;
    embedding_ = linear(embedding, {c.vocabulary}, c.size, false, false);
    device.embedding = embedding.matrix;
    device.embedding_multiplier = 5;
    device.final_norm = norm(final_norm_, c.norm);
    head_ = linear(device.head, {c.vocabulary}, c.size);
    device.logits_multiplier = 3;
    device.final_softcap = c.final_softcap;

    kv.resize(blocks);
    for (auto& block : kv) {
      block.resize(kv_block_bytes(device) / 2);
      for (float& v : block) {
        v = rounded(random_.uniform());
      }
      std::vector<uint16_t> bits(block.size());
      for (size_t i = 0; i < bits.size(); i++) {
        bits[i] = bfloat16_bits(block[i]);
      }
      device_kv.push_back(pool.upload(bits));
    }
  }

  // Logits of a token after `length` tokens in `blocks`, which it is not
  // written into.
  std::vector<float> step(int token, int length, const std::vector<int>& blocks)
      const {
    const int size = c_.size;
    const int dims = c_.head_size;
    std::vector<float> x(size);
    for (int i = 0; i < size; i++) {
      x[i] =
          rounded(embedding_.values[static_cast<size_t>(token) * size + i]) * 5;
    }
    for (int l = 0; l < c_.layers; l++) {
      const Layer& h = host_[l];
      const DecoderLayer& d = device.layers[l];
      auto in = normed(h.before_attention, d.before_attention, x);
      std::vector<float> qkv;
      if (c_.apart) {
        for (const Matrix* m : {&h.q, &h.k, &h.v}) {
          auto part = product(*m, in);
          qkv.insert(qkv.end(), part.begin(), part.end());
        }
      } else {
        qkv = product(h.qkv, in);
      }
      for (float& v : qkv) {
        v = rounded(v);
      }
      for (int head = 0; head < c_.heads + c_.kv_heads; head++) {
        place(h, head, length, &qkv[static_cast<size_t>(head) * dims]);
      }
      auto attended = attend(h, d, l, length, blocks, qkv);
      auto add = [&](std::vector<float> branch,
                     const std::vector<float>& w,
                     const Norm& n) {
        branch = normed(w, n, branch);
        for (int i = 0; i < size; i++) {
          x[i] += c_.multiplier * branch[i];
        }
      };
      auto attention = product(h.o, attended);
      if (!c_.parallel) {
        add(attention, h.after_attention, d.after_attention);
        in = normed(h.before_mlp, d.before_mlp, x);
      }
      auto up = product(h.gate_up, in);
      std::vector<float> inner(c_.inner);
      for (int i = 0; i < c_.inner; i++) {
        float v = activated(up[i]);
        inner[i] = rounded(c_.gated ? v * up[c_.inner + i] : v);
      }
      if (c_.parallel) {
        add(attention, h.after_attention, d.after_attention);
      }
      add(product(h.down, inner), h.after_mlp, d.after_mlp);
    }
    auto logits = product(head_, normed(final_norm_, device.final_norm, x));
    for (float& v : logits) {
      v *= 3;
      if (c_.final_softcap > 0) {
        v = c_.final_softcap * std::tanh(v / c_.final_softcap);
      }
    }
    return logits;
  }

  Decoder device;
  std::vector<std::vector<float>> kv;
  std::vector<uint16_t*> device_kv;

 private:
  struct Matrix {
    std::vector<float> values;
    std::vector<float> bias;
    int rows = 0;
    int columns = 0;
  };
  struct Layer {
    Matrix qkv, q, k, v, o, gate_up, down;
    std::vector<float> before_attention, after_attention, before_mlp, after_mlp;
    std::vector<float> q_norm, k_norm, sinks;
  };

  std::vector<float> floats(int count, float middle, float spread) {
    std::vector<float> v(count);
    for (float& f : v) {
      f = middle + spread * random_.uniform();
    }
    return v;
  }
  Norm norm(std::vector<float>& host, Norm::Kind kind) {
    host = floats(c_.size, 1, 0.3f);
    Norm n;
    n.kind = kind;
    n.eps = 1e-5f;
    n.weight = pool_.upload(host);
    if (kind == Norm::Kind::layer) {
      auto bias = floats(c_.size, 0, 0.2f);
      n.bias = pool_.upload(bias);
      host.insert(host.end(), bias.begin(), bias.end());
    }
    return n;
  }
  Matrix linear(
      Linear& to,
      const std::vector<int>& parts,
      int columns,
      bool gate_up = false,
      bool with_bias = true) {
    Matrix m;
    m.columns = columns;
    for (int rows : parts) {
      m.rows += rows;
    }
    to.matrix = make_packed(pool_, c_.format, c_.group, m.rows, columns);
    int first = 0;
    for (size_t i = 0; i < parts.size(); i++) {
      HostMatrix part(c_.format, c_.group, parts[i], columns, random_.bits());
      RowOrder order = !gate_up ? RowOrder::plain
          : i                   ? RowOrder::up
                                : RowOrder::gate;
      require(
          pack(
              part.on_device(pool_),
              to.matrix,
              order,
              gate_up ? 0 : first,
              nullptr),
          "pack");
      first += parts[i];
      m.values.insert(m.values.end(), part.values.begin(), part.values.end());
    }
    if (c_.biases && with_bias) {
      m.bias = floats(m.rows, 0, 0.3f);
      std::vector<float> placed = m.bias;
      if (gate_up) {
        for (int i = 0; i < m.rows; i++) {
          int r = i % (m.rows / 2);
          placed[r / 8 * 16 + r % 8 + (i >= m.rows / 2 ? 8 : 0)] = m.bias[i];
        }
      }
      to.bias = pool_.upload(placed);
    }
    return m;
  }
  static std::vector<float> product(
      const Matrix& m,
      const std::vector<float>& x) {
    std::vector<float> y(m.rows);
    for (int r = 0; r < m.rows; r++) {
      float sum = m.bias.empty() ? 0 : m.bias[r];
      const float* w = &m.values[static_cast<size_t>(r) * m.columns];
      for (int k = 0; k < m.columns; k++) {
        sum += w[k] * x[k];
      }
      y[r] = sum;
    }
    return y;
  }
  std::vector<float> normed(
      const std::vector<float>& weight,
      const Norm& norm,
      std::vector<float> x) const {
    if (norm.kind == Norm::Kind::none) {
      return x;
    }
    const size_t n = x.size();
    double mean = 0;
    if (norm.kind == Norm::Kind::layer) {
      for (float v : x) {
        mean += v;
      }
      mean /= n;
    }
    double square = 0;
    for (float v : x) {
      square += (v - mean) * (v - mean);
    }
    const double scale = 1 / std::sqrt(square / n + norm.eps);
    for (size_t i = 0; i < n; i++) {
      x[i] = static_cast<float>((x[i] - mean) * scale * weight[i]);
      if (weight.size() > n) {
        x[i] += weight[n + i];
      }
    }
    return x;
  }
  float activated(float v) const {
    switch (c_.activation) {
      case Activation::silu:
        return v / (1 + std::exp(-v));
      case Activation::gelu:
        return v / 2 * (1 + std::erf(v / std::sqrt(2.f)));
      case Activation::gelu_tanh:
        return v / 2 *
            (1 + std::tanh(0.79788456f * (v + 0.044715f * v * v * v)));
      default:
        return v > 0 ? v * v : 0;
    }
  }
  void place(const Layer& h, int head, int position, float* x) const {
    const int dims = c_.head_size;
    const bool is_key = head >= c_.heads;
    if (c_.qk_norm) {
      double square = 0;
      for (int i = 0; i < dims; i++) {
        square += static_cast<double>(x[i]) * x[i];
      }
      const double scale = 1 / std::sqrt(square / dims + 1e-6);
      for (int i = 0; i < dims; i++) {
        float w = is_key ? h.k_norm[(head - c_.heads) * dims + i] : h.q_norm[i];
        x[i] = static_cast<float>(x[i] * scale * w);
      }
    }
    const int half = static_cast<int>(turns_.size());
    for (int i = 0; i < half; i++) {
      double angle = position * turns_[i];
      float& a = c_.pairs ? x[2 * i] : x[i];
      float& b = c_.pairs ? x[2 * i + 1] : x[i + half];
      double c = std::cos(angle) * 1.1f;
      double s = std::sin(angle) * 1.1f;
      double was = a;
      a = static_cast<float>(was * c - b * s);
      b = static_cast<float>(b * c + was * s);
    }
    for (int i = 0; i < dims; i++) {
      if (!is_key && c_.query_beta != 0) {
        x[i] *=
            1 + c_.query_beta * std::log1p(static_cast<float>(position / 100));
      }
      x[i] = rounded(x[i]);
    }
  }
  std::vector<float> attend(
      const Layer& h,
      const DecoderLayer& d,
      int layer,
      int length,
      const std::vector<int>& blocks,
      const std::vector<float>& qkv) const {
    const int dims = c_.head_size;
    std::vector<float> out(static_cast<size_t>(c_.heads) * dims);
    const int first = d.window ? std::max(0, length + 1 - d.window) : 0;
    for (int head = 0; head < c_.heads; head++) {
      const int kv_head = head / (c_.heads / c_.kv_heads);
      auto numbers = [&](int token, int part) {
        if (token == length) {
          return &qkv
              [static_cast<size_t>(c_.heads + part * c_.kv_heads + kv_head) *
               dims];
        }
        size_t at =
            (static_cast<size_t>(layer) * 2 + part) * c_.kv_heads + kv_head;
        return &kv[blocks[token / 64]][(at * 64 + token % 64) * dims];
      };
      std::vector<double> scores;
      double most = c_.sinks ? h.sinks[head] : -1e30;
      for (int j = first; j <= length; j++) {
        const float* k = numbers(j, 0);
        double s = 0;
        for (int i = 0; i < dims; i++) {
          s += static_cast<double>(qkv[static_cast<size_t>(head) * dims + i]) *
              k[i];
        }
        s *= d.attention_scale;
        if (d.softcap > 0) {
          s = d.softcap * std::tanh(s / d.softcap);
        }
        scores.push_back(s);
        most = std::max(most, s);
      }
      double sum = c_.sinks ? std::exp(h.sinks[head] - most) : 0;
      std::vector<double> mean(dims);
      for (int j = first; j <= length; j++) {
        double w = std::exp(scores[j - first] - most);
        sum += w;
        const float* v = numbers(j, 1);
        for (int i = 0; i < dims; i++) {
          mean[i] += w * v[i];
        }
      }
      for (int i = 0; i < dims; i++) {
        out[static_cast<size_t>(head) * dims + i] =
            rounded(static_cast<float>(mean[i] / sum));
      }
    }
    return out;
  }

  DecoderCase c_;
  Pool& pool_;
  Random random_;
  std::vector<double> turns_;
  std::vector<Layer> host_;
  Matrix embedding_;
  Matrix head_;
  std::vector<float> final_norm_;
};

}  // namespace mlxx::kernels::cuda
