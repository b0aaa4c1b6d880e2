#include "tests/kernels/reference_decoder.h"

#include <cmath>

#include "mlxx/core/mlx.h"

namespace mlxx::kernels {
namespace {

using Row = ReferenceDecoder::Row;

Row normed(
    const NormWeights& norm,
    const Row& x,
    const float* weight,
    const float* bias) {
  if (!norm) {
    return x;
  }
  double mean = 0;
  if (norm.kind == NormWeights::Kind::layer) {
    for (double v : x) {
      mean += v / static_cast<double>(x.size());
    }
  }
  double variance = 0;
  for (double v : x) {
    variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
  }
  Row y;
  for (size_t i = 0; i < x.size(); ++i) {
    double scaled = (x[i] - mean) / std::sqrt(variance + norm.eps) * weight[i];
    y.push_back(scaled + (bias ? bias[i] : 0.0));
  }
  return y;
}

Row normed(const NormWeights& norm, const Row& x) {
  return normed(
      norm,
      x,
      norm.weight.data(),
      norm.bias.empty() ? nullptr : norm.bias.data());
}

double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::gelu:
      return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::gelu_tanh:
      return x / 2 *
          (1 +
           std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * std::pow(x, 3))));
    case Activation::relu_squared:
      return x > 0 ? x * x : 0;
  }
  return NAN;
}

double capped(double x, double cap) {
  return cap > 0 ? cap * std::tanh(x / cap) : x;
}

void add(Row& x, const Row& y, double multiplier) {
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] += multiplier * y[i];
  }
}

}  // namespace

const ReferenceDecoder::Matrix& ReferenceDecoder::numbers(
    const PanelMatrix& matrix) {
  auto found = matrices_.find(&matrix);
  if (found == matrices_.end()) {
    mx::array all = mx::contiguous(matrix.dequantize());
    mx::eval(all);
    const float* data = all.data<float>();
    found = matrices_.emplace(&matrix, Matrix(data, data + all.size())).first;
  }
  return found->second;
}

Row ReferenceDecoder::multiply(const PanelLinear& linear, const Row& x) {
  const Matrix& matrix = numbers(*linear.matrix);
  Row y(linear.matrix->out());
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] = linear.bias.empty() ? 0 : linear.bias[i];
    for (size_t j = 0; j < x.size(); ++j) {
      y[i] += matrix[i * x.size() + j] * x[j];
    }
  }
  return y;
}

Row ReferenceDecoder::head_row(const HeadNorm& head, const Row& row) const {
  if (!head.norm || head.whole) {
    return normed(head.norm, row);
  }
  size_t size = weights_.head_size;
  Row all;
  for (size_t at = 0; at < row.size(); at += size) {
    Row one(row.begin() + at, row.begin() + at + size);
    bool shared = head.norm.weight.size() == size;
    Row y = normed(
        head.norm,
        one,
        head.norm.weight.data() + (shared ? 0 : at),
        nullptr);
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

void ReferenceDecoder::rotate(int index, int position, double* head) const {
  if (index < 0) {
    return;
  }
  const RotationTable& table = weights_.rotations[index];
  size_t pairs = table.per_position.size();
  for (size_t i = 0; i < pairs; ++i) {
    double& a = head[table.pairs ? 2 * i : i];
    double& b = head[table.pairs ? 2 * i + 1 : pairs + i];
    double angle = position * table.per_position[i];
    double c = table.scale * std::cos(angle);
    double s = table.scale * std::sin(angle);
    double turned = a * c - b * s;
    b = a * s + b * c;
    a = turned;
  }
}

ReferenceDecoder::Rows ReferenceDecoder::attend(
    const DecoderLayerWeights& w,
    const Rows& queries,
    const Rows& keys,
    const Rows& values) const {
  int size = weights_.head_size;
  int group = weights_.heads / weights_.kv_heads;
  Rows out;
  for (int t = 0; t < static_cast<int>(queries.size()); ++t) {
    Row row(weights_.heads * size);
    for (int h = 0; h < weights_.heads; ++h) {
      int kv = h / group * size;
      int first = w.window > 0 ? std::max(0, t + 1 - w.window) : 0;
      std::vector<double> scores;
      for (int s = first; s <= t; ++s) {
        double score = 0;
        for (int d = 0; d < size; ++d) {
          score += queries[t][h * size + d] * keys[s][kv + d];
        }
        scores.push_back(capped(score * w.attention_scale, w.softcap));
      }
      double total = w.sinks.empty() ? 0 : std::exp(w.sinks[h]);
      for (double score : scores) {
        total += std::exp(score);
      }
      for (int s = first; s <= t; ++s) {
        for (int d = 0; d < size; ++d) {
          row[h * size + d] +=
              std::exp(scores[s - first]) / total * values[s][kv + d];
        }
      }
    }
    out.push_back(row);
  }
  return out;
}

Row ReferenceDecoder::feed_forward(const DecoderLayerWeights& w, const Row& x) {
  Row inner = multiply(w.gate.matrix ? w.gate : w.up, x);
  for (double& v : inner) {
    v = activated(w.activation, v);
  }
  if (w.gate.matrix) {
    Row up = multiply(w.up, x);
    for (size_t i = 0; i < inner.size(); ++i) {
      inner[i] *= up[i];
    }
  }
  return normed(w.after_mlp, multiply(w.down, inner));
}

ReferenceDecoder::Rows ReferenceDecoder::layer(int index, const Rows& x) {
  const auto& w = weights_.layers[index];
  Rows queries;
  Rows keys;
  Rows values;
  for (int t = 0; t < static_cast<int>(x.size()); ++t) {
    Row n = normed(w.before_attention, x[t]);
    queries.push_back(head_row(w.q_norm, multiply(w.q, n)));
    keys.push_back(head_row(w.k_norm, multiply(w.k, n)));
    values.push_back(multiply(w.v, n));
    double scale = 1 +
        w.query_scale.beta * std::log(1.0 + t / w.query_scale.original_length);
    for (int h = 0; h < weights_.heads; ++h) {
      rotate(w.rotation, t, queries.back().data() + h * weights_.head_size);
    }
    for (double& q : queries.back()) {
      q *= scale;
    }
    for (int h = 0; h < weights_.kv_heads; ++h) {
      rotate(w.rotation, t, keys.back().data() + h * weights_.head_size);
    }
  }
  Rows attended = attend(w, queries, keys, values);
  Rows out = x;
  for (size_t t = 0; t < x.size(); ++t) {
    Row branch = normed(w.after_attention, multiply(w.o, attended[t]));
    add(out[t], branch, w.residual_multiplier);
    if (w.up.matrix) {
      const Row& read = w.parallel ? x[t] : out[t];
      add(out[t],
          feed_forward(w, normed(w.before_mlp, read)),
          w.residual_multiplier);
    }
  }
  return out;
}

ReferenceDecoder::Rows ReferenceDecoder::logits(
    const std::vector<int>& tokens) {
  size_t hidden = weights_.hidden_size;
  Rows x;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const float* from =
        numbers(*weights_.embedding).data() + tokens[t] * hidden;
    Row row(from, from + hidden);
    for (size_t i = 0; i < hidden; ++i) {
      row[i] *= weights_.embedding_multiplier;
      if (weights_.positions) {
        row[i] += numbers(*weights_.positions)[t * hidden + i];
      }
    }
    x.push_back(row);
  }
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    x = layer(static_cast<int>(i), x);
  }
  for (Row& row : x) {
    row = multiply(weights_.head, normed(weights_.final_norm, row));
    for (double& logit : row) {
      logit =
          capped(logit * weights_.logits_multiplier, weights_.final_softcap);
    }
  }
  return x;
}

}  // namespace mlxx::kernels
