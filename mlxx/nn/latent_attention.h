#pragma once

#include "mlxx/cache/cache.h"
#include "mlxx/nn/linear.h"
#include "mlxx/nn/norm.h"
#include "mlxx/nn/rope.h"

namespace mlxx::nn {

// A matrix [out, in] for each head, quantized or not.
class HeadMatrices {
 public:
  HeadMatrices(int heads, int out, int in);

  // x [B, heads or 1, L, in] -> [B, heads, L, out].
  mx::array operator()(const mx::array& x) const;
  // x [B, heads or 1, L, out] times the matrix itself -> [B, heads, L, in].
  // Not in a packed form.
  mx::array transposed(const mx::array& x) const;
  bool is_packed() const {
    return weight_.packed() != nullptr;
  }
  void visit(const std::string& prefix, const ParameterVisitor& visitor);

 private:
  mx::array product(const mx::array& x, bool transpose) const;

  Parameter weight_;  // [heads, out, in]
};

struct LatentAttentionSpec {
  int hidden_size = 0;
  int heads = 0;
  int query_rank = 0;   // 0: queries are projected in one step
  int latent_size = 0;  // kv_lora_rank
  int plain_size = 0;   // of a head's queries and keys, not rotated
  int rope_size = 0;    // the rotated part
  int value_size = 0;
  float scale = 0;  // multiplies scores
  bool bias = false;
  std::shared_ptr<const Rope> rope;
};

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): one
// latent vector per token stands for all heads' keys and values, beside one
// rotated key. Reference: mlx-lm 0.32.2, models/deepseek_v3.py and mla.py,
// whose one-token step attends to the latents themselves while longer pieces
// expand keys and values. With packed matrices every piece attends to the
// latents, so that a token's bits do not depend on how its prompt was split.
//
// Parameters: q_proj, or q_a_proj, q_a_layernorm and q_b_proj;
// kv_a_proj_with_mqa, kv_a_layernorm, embed_q, unembed_out, o_proj. The cache
// holds latents and rotated keys, with packed matrices both together as keys.
class LatentAttention {
 public:
  explicit LatentAttention(const LatentAttentionSpec& spec);
  // Which kernels compute; without a call the plain operations.
  void use(const kernels::Selection& selection);

  // x [B, L, E] -> [B, L, E]; appends L tokens to the cache.
  mx::array operator()(
      const mx::array& x,
      const kernels::AttentionMask& mask,
      cache::KVCache& cache) const;
  void visit(const std::string& prefix, const ParameterVisitor& visitor);

 private:
  // Of the tokens that came in; heads apart.
  struct Parts {
    mx::array plain_queries;    // [B, H, L, plain]
    mx::array rotated_queries;  // [B, H, L, rope]
    mx::array latents;          // [B, 1, L, latent]
    mx::array rotated_keys;     // [B, 1, L, rope]
  };
  Parts project(const mx::array& x, const kernels::Position& first) const;
  mx::array as_reference(
      const Parts& parts,
      const kernels::AttentionMask& mask,
      cache::KVCache& cache) const;
  // The same once the cache has the tokens.
  mx::array attend_as_reference(
      const Parts& parts,
      const kernels::AttentionMask& mask,
      const kernels::DenseView& tokens) const;
  mx::array on_latents(
      const Parts& parts,
      const kernels::AttentionMask& mask,
      cache::KVCache& cache) const;

  LatentAttentionSpec spec_;
  std::optional<Linear> q_;
  std::optional<Linear> q_a_;
  std::optional<Norm> q_a_norm_;
  std::optional<Linear> q_b_;
  Linear kv_a_;
  Norm kv_a_norm_;
  HeadMatrices embed_q_;      // [heads, latent, plain]
  HeadMatrices unembed_out_;  // [heads, value, latent]
  Linear o_;
  kernels::Selection selection_;
};

}  // namespace mlxx::nn
