#include "mlxx/kernels/decode_step/decoder_weights.h"

#include <fmt/format.h>

namespace mlxx::kernels {
namespace {

// Says of the first part that does not fit what is wrong with it.
class Check {
 public:
  void
  matrix(const char* name, const PanelLinear& linear, int64_t out, int64_t in) {
    if (!linear.matrix) {
      report(fmt::format("no matrix for {}", name));
      return;
    }
    if (linear.matrix->out() != out || linear.matrix->in() != in) {
      report(fmt::format(
          "{} of {} x {}, not {} x {}",
          name,
          linear.matrix->out(),
          linear.matrix->in(),
          out,
          in));
    }
    vector(name, linear.bias, out, true);
  }

  void norm(const char* name, const NormWeights& norm, int64_t size) {
    if (norm) {
      vector(name, norm.weight, size, false);
      vector(name, norm.bias, size, true);
    }
  }

  void head_norm(
      const char* name,
      const HeadNorm& head,
      int64_t heads,
      int64_t head_size) {
    auto n = static_cast<int64_t>(head.norm.weight.size());
    bool shared = !head.whole && n == head_size;
    norm(name, head.norm, shared ? head_size : heads * head_size);
  }

  void vector(
      const char* name,
      const std::vector<float>& numbers,
      int64_t size,
      bool may_be_empty) {
    if (!(may_be_empty && numbers.empty()) &&
        static_cast<int64_t>(numbers.size()) != size) {
      report(fmt::format(
          "{} numbers in a vector of {}, not {}",
          numbers.size(),
          name,
          size));
    }
  }

  void report(std::string text) {
    if (problem_.empty()) {
      problem_ = std::move(text);
    }
  }
  const std::string& problem() const {
    return problem_;
  }

 private:
  std::string problem_;
};

std::string problem_of(
    const DecoderWeights& weights,
    const DecoderLayerWeights& layer) {
  Check check;
  int64_t hidden = weights.hidden_size;
  int64_t queries = int64_t{weights.heads} * weights.head_size;
  int64_t keys = int64_t{weights.kv_heads} * weights.head_size;
  check.norm("the norm before attention", layer.before_attention, hidden);
  check.matrix("q", layer.q, queries, hidden);
  check.matrix("k", layer.k, keys, hidden);
  check.matrix("v", layer.v, keys, hidden);
  check.matrix("o", layer.o, hidden, queries);
  int64_t size = weights.head_size;
  check.head_norm("the norm of queries", layer.q_norm, weights.heads, size);
  check.head_norm("the norm of keys", layer.k_norm, weights.kv_heads, size);
  check.vector("sinks", layer.sinks, weights.heads, true);
  check.norm("the norm after attention", layer.after_attention, hidden);
  if (layer.has_network()) {
    check.norm("the norm before the network", layer.before_mlp, hidden);
    int64_t inner = layer.down.matrix ? layer.down.matrix->in() : 0;
    if (layer.gate.matrix) {
      check.matrix("gate", layer.gate, inner, hidden);
    }
    check.matrix("up", layer.up, inner, hidden);
    check.matrix("down", layer.down, hidden, inner);
    check.norm("the norm after the network", layer.after_mlp, hidden);
  }
  int tables = static_cast<int>(weights.rotations.size());
  if (layer.rotation >= tables) {
    check.report(fmt::format("rotation {} of {}", layer.rotation, tables));
  }
  return check.problem();
}

}  // namespace

std::string why_not_run(const DecoderWeights& weights) {
  if (weights.head_size % kHeadSizeStep != 0 || weights.head_size <= 0) {
    return fmt::format(
        "a head size of {}, which is no multiple of {}",
        weights.head_size,
        kHeadSizeStep);
  }
  if (weights.kv_heads <= 0 || weights.heads % weights.kv_heads != 0 ||
      weights.heads / weights.kv_heads > kSplitQueries) {
    return fmt::format(
        "{} heads of queries for {} of keys, more than {} for one",
        weights.heads,
        weights.kv_heads,
        kSplitQueries);
  }
  for (const auto& table : weights.rotations) {
    if (2 * table.per_position.size() > size_t(weights.head_size)) {
      return fmt::format(
          "rotations of {} numbers in a head of {}",
          2 * table.per_position.size(),
          weights.head_size);
    }
  }
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    std::string problem = problem_of(weights, weights.layers[i]);
    if (!problem.empty()) {
      return fmt::format("layer {} has {}", i, problem);
    }
  }
  if (weights.embedding) {
    Check check;
    int64_t words = weights.embedding->out();
    check.matrix(
        "the embedding",
        {weights.embedding, {}},
        words,
        weights.hidden_size);
    check.norm("the last norm", weights.final_norm, weights.hidden_size);
    const auto& head = weights.head.matrix;
    check.matrix(
        "the head",
        weights.head,
        head ? head->out() : words,
        weights.hidden_size);
    if (weights.positions && weights.positions->in() != weights.hidden_size) {
      check.report("positions of another size");
    }
    return check.problem();
  }
  return {};
}

}  // namespace mlxx::kernels
