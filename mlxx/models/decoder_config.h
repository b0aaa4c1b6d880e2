#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/models/decoder_spec.h"

namespace mlxx::models {

// Keys of a config.json that families spell in their own way.
struct ConfigKeys {
  std::string_view hidden_size = "hidden_size";
  std::string_view intermediate_size = "intermediate_size";
  std::string_view layers = "num_hidden_layers";
  std::string_view heads = "num_attention_heads";
  std::string_view kv_heads = "num_key_value_heads";
  std::string_view norm_eps = "rms_norm_eps";
  std::string_view positions = "max_position_embeddings";
};

// A decoder's config.json. Getters name file and key in their errors
// (bad_file); keys that no family reads are ignored.
class DecoderConfig {
 public:
  explicit DecoderConfig(const hub::Checkpoint& checkpoint);
  // A part of it, such as "text_config", or one that was completed; what the
  // view shows has to outlive this.
  DecoderConfig(const hub::Checkpoint& checkpoint, JsonView view);

  const JsonView& view() const {
    return view_;
  }
  const hub::Checkpoint& checkpoint() const {
    return checkpoint_;
  }

  bool has_tensor(std::string_view name) const;

  // A count or width: from 1 to 2^24.
  int size(std::string_view key) const;
  int size_or(std::string_view key, int fallback) const;
  float number(std::string_view key) const;
  float number_or(std::string_view key, double fallback) const;
  bool flag_or(std::string_view key, bool fallback) const;

  // Sizes, heads, norms, tying and, by "layer_types", windows: what families
  // share. Every layer the same pre-norm block without rotation and biases,
  // with attention_scale 1 / sqrt(D).
  DecoderSpec decoder(const ConfigKeys& keys = {}) const;

  // "layer_types" of `layers` entries, or empty. bad_file for another count.
  std::vector<std::string> layer_types(int layers) const;
  // A window for the layers that "layer_types" calls sliding_attention, from
  // "sliding_window"; full_attention sees all. unsupported for other types.
  void read_windows(DecoderSpec& spec) const;

  // rope_theta, rope_traditional and rope_scaling, or rope_parameters of
  // transformers 5, for the first `dims` of a head.
  std::shared_ptr<const nn::Rope>
  rope(int dims, double default_base = 10000, bool traditional = false) const;
  // Without any scaling.
  std::shared_ptr<const nn::Rope>
  plain_rope(int dims, double base, bool traditional = false) const;
  double rope_base(double fallback) const;
  // head_size * partial_rotary_factor, rounded down.
  int rotated(int head_size, double default_factor = 1) const;

  // unsupported unless "hidden_act" (or `key`) is absent or one of `names`.
  void require_activation(
      std::initializer_list<std::string_view> names,
      std::string_view key = "hidden_act") const;

 private:
  const hub::Checkpoint& checkpoint_;
  JsonView view_;
};

// Whether the output head is the embedding. Where no config says it, the
// presence of a head decides. A head beside a tied embedding is dropped, with
// a warning if it holds something else.
bool read_tied(const DecoderConfig& config, const DecoderSpec& spec);

}  // namespace mlxx::models
