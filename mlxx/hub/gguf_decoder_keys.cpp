#include "mlxx/hub/gguf_decoder_keys.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"

namespace mlxx::hub {

namespace {

constexpr int64_t kMaxSize = 1 << 20;
constexpr int64_t kMaxHead = 8192;

// A count that some architectures give per layer; these have one for all.
int64_t uniform_count(
    const GgufMetadata& metadata,
    const std::string& key,
    int64_t max) {
  const GgufValue* value = metadata.find(key);
  if (!value || value->type != GgufValueType::array) {
    return metadata.integer(key, 1, max);
  }
  auto counts = metadata.integers(key);
  if (counts.empty() || counts[0] < 1 || counts[0] > max) {
    metadata.fail_at(key, fmt::format("must hold counts from 1 to {}", max));
  }
  if (std::ranges::any_of(counts, [&](auto n) { return n != counts[0]; })) {
    fail(
        ErrorKind::unsupported,
        metadata.place(),
        "'{}' differs between layers",
        key);
  }
  return counts[0];
}

// Keys that change the computation and that config.json cannot say.
void refuse_other_forms(const GgufDecoderKeys& keys) {
  const GgufMetadata& metadata = keys.metadata();
  std::string experts = keys.key("expert_count");
  if (metadata.integer_if(experts, 0, INT32_MAX).value_or(0) > 0) {
    fail(
        ErrorKind::unsupported,
        metadata.place(),
        "a mixture of experts ('{}') in the architecture '{}'",
        experts,
        keys.architecture);
  }
  for (const char* name :
       {"attention.scale",
        "logit_scale",
        "embedding_scale",
        "residual_scale",
        "attention.clamp_kqv"}) {
    std::string key = keys.key(name);
    if (metadata.has(key) && metadata.number(key) != 0 &&
        metadata.number(key) != 1) {
      fail(
          ErrorKind::unsupported,
          metadata.place(),
          "'{}' is {}, which {} does not have",
          key,
          metadata.number(key),
          keys.architecture);
    }
  }
}

}  // namespace

GgufDecoderKeys read_gguf_decoder(
    const GgufFile& file,
    const std::string& architecture) {
  const GgufMetadata& metadata = file.metadata();
  GgufDecoderKeys keys{.file = file, .architecture = architecture};
  refuse_other_forms(keys);
  keys.hidden = metadata.integer(keys.key("embedding_length"), 1, kMaxSize);
  keys.layers = metadata.integer(keys.key("block_count"), 1, 4096);
  keys.heads = uniform_count(metadata, keys.key("attention.head_count"), 4096);
  keys.kv_heads = keys.heads;
  std::string kv_key = keys.key("attention.head_count_kv");
  if (metadata.has(kv_key)) {
    keys.kv_heads = uniform_count(metadata, kv_key, keys.heads);
  }
  keys.head_size =
      metadata.integer_if(keys.key("attention.key_length"), 1, kMaxHead)
          .value_or(keys.hidden / keys.heads);
  if (keys.head_size < 2 || keys.head_size % 2 != 0 ||
      keys.heads % keys.kv_heads != 0) {
    fail(
        ErrorKind::bad_file,
        metadata.place(),
        "{} heads of {} with {} key-value heads cannot be",
        keys.heads,
        keys.head_size,
        keys.kv_heads);
  }
  std::string value_key = keys.key("attention.value_length");
  int64_t value_size =
      metadata.integer_if(value_key, 0, kMaxHead).value_or(keys.head_size);
  if (value_size != keys.head_size) {
    fail(
        ErrorKind::unsupported,
        metadata.place(),
        "'{}' is {}, the head size is {}",
        value_key,
        value_size,
        keys.head_size);
  }
  keys.rotated =
      metadata.integer_if(keys.key("rope.dimension_count"), 0, kMaxHead)
          .value_or(keys.head_size);
  keys.base = metadata.number_if(keys.key("rope.freq_base")).value_or(10000.0);
  keys.context = metadata.integer(keys.key("context_length"), 1, INT32_MAX);
  return keys;
}

void GgufDecoderKeys::require_full_rotation() const {
  if (rotated != head_size) {
    fail(
        ErrorKind::unsupported,
        metadata().place(),
        "'{}' is {}, the head size is {}",
        key("rope.dimension_count"),
        rotated,
        head_size);
  }
}

Json GgufDecoderKeys::config(
    std::string_view model_type,
    std::string_view class_name) const {
  const GgufTensor* embedding = find_gguf_tensor(file, "token_embd.weight");
  if (!embedding || embedding->shape.size() != 2) {
    fail(
        ErrorKind::bad_file,
        metadata().place(),
        "the matrix 'token_embd.weight' is missing");
  }
  return {
      {"architectures", {std::string(class_name)}},
      {"model_type", std::string(model_type)},
      {"hidden_act", "silu"},
      {"vocab_size", embedding->shape[0]},
      {"hidden_size", hidden},
      {"num_hidden_layers", layers},
      {"intermediate_size",
       uniform_count(metadata(), key("feed_forward_length"), kMaxSize)},
      {"num_attention_heads", heads},
      {"num_key_value_heads", kv_heads},
      {"head_dim", head_size},
      {"rms_norm_eps",
       metadata().number(key("attention.layer_norm_rms_epsilon"))},
      {"max_position_embeddings", context},
      {"rope_theta", base},
      {"tie_word_embeddings",
       find_gguf_tensor(file, "output.weight") == nullptr}};
}

RowOrder rows_as_they_are(const Json&, std::string_view) {
  return {};
}

}  // namespace mlxx::hub
