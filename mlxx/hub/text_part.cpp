#include "mlxx/hub/text_part.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/hub/rewritten_checkpoint.h"

namespace mlxx::hub {

namespace {

struct Family {
  std::string_view whole;  // model_type of config.json
  std::string_view text;   // what its language model is; empty: as it says
};

constexpr Family kFamilies[] = {
    {"gemma3", "gemma3_text"},
    {"gemma4", "gemma4_text"},
    {"gemma4_unified", "gemma4_text"},
    {"mistral3", ""},
    {"qwen3_vl", "qwen3"},
    {"qwen3_vl_moe", "qwen3_moe"},
};

constexpr std::string_view kOtherParts[] = {
    "vision_tower",
    "vision_model",
    "vision_embedder",
    "multi_modal_projector",
    "visual",
    "audio_tower",
    "embed_audio",
    "embed_vision",
    "patch_merger",
};

bool is_other_part(std::string_view name) {
  for (std::string_view prefix : {"model.", ""}) {
    if (name.starts_with(prefix)) {
      std::string_view rest = name.substr(prefix.size());
      bool is_other = std::ranges::any_of(kOtherParts, [&](auto part) {
        return rest.starts_with(part) &&
            (rest.size() == part.size() || rest[part.size()] == '.');
      });
      if (is_other) {
        return true;
      }
    }
  }
  return false;
}

// Checkpoints of transformers 5 have "model.language_model.layers", older and
// MLX's "language_model.model.layers".
std::string text_name(std::string_view name) {
  constexpr std::string_view kNew = "model.language_model.";
  constexpr std::string_view kOld = "language_model.";
  if (name.starts_with(kNew)) {
    return fmt::format("model.{}", name.substr(kNew.size()));
  }
  return std::string(name.starts_with(kOld) ? name.substr(kOld.size()) : name);
}

void set_default(Json& config, const char* key, const Json& value) {
  auto found = config.find(key);
  if (found == config.end() || found->is_null()) {
    config[key] = value;
  }
}

Json make_config(const Json& whole, const Family& family) {
  JsonView view(whole, "config.json");
  JsonView text = view.object("text_config");
  Json config = text.json();
  if (!family.text.empty()) {
    config["model_type"] = std::string(family.text);
  } else {
    std::string type = text.string_or("model_type", "");
    config["model_type"] =
        type == "ministral3" || type == "mistral4" ? type : "mistral";
    set_default(config, "tie_word_embeddings", false);
  }
  if (family.whole == "gemma3" || family.whole == "gemma4" ||
      family.whole == "gemma4_unified") {
    // What those configs leave to the classes that read them.
    bool is_third = family.whole == "gemma3";
    config["vocab_size"] =
        view.integer_or("vocab_size", is_third ? 262208 : 262144, 1, 1 << 24);
    set_default(config, "num_attention_heads", 8);
    set_default(config, "num_key_value_heads", is_third ? 4 : 1);
    set_default(config, "rms_norm_eps", 1e-6);
    set_default(config, "head_dim", 256);
  }
  for (const char* key :
       {"architectures",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "tie_word_embeddings",
        "quantization",
        "quantization_config"}) {
    auto found = whole.find(key);
    if (found != whole.end() && !found->is_null()) {
      set_default(config, key, *found);
    }
  }
  return config;
}

// Both halves of the experts' MLP in one, with inputs before outputs.
void split_experts(TensorRewrite& tensors) {
  for (int64_t layer :
       tensors.numbers("model.layers.{}.mlp.experts.gate_up_proj")) {
    auto at = [&](const char* name) {
      return fmt::format("model.layers.{}.mlp.{}", layer, name);
    };
    std::string gate = at("switch_mlp.gate_proj.weight");
    std::string up = at("switch_mlp.up_proj.weight");
    std::string down = at("switch_mlp.down_proj.weight");
    tensors.split_evenly(at("experts.gate_up_proj"), -1, {gate, up});
    tensors.rename(at("experts.down_proj"), down);
    for (const auto& name : {gate, up, down}) {
      tensors.move_axis(name, -1, -2);
    }
  }
}

}  // namespace

std::shared_ptr<const Checkpoint> text_part(
    std::shared_ptr<const Checkpoint> checkpoint) {
  JsonView config(checkpoint->config(), "config.json");
  auto family = std::ranges::find(
      kFamilies,
      config.string_or("model_type", ""),
      &Family::whole);
  // MLX's converter writes some with the keys of the text on top.
  if (family == std::end(kFamilies) || !config.has("text_config")) {
    return checkpoint;
  }
  TensorRewrite tensors(checkpoint);
  tensors.set_config(make_config(checkpoint->config(), *family));
  auto before = tensors.names().size();
  tensors.drop_each(is_other_part, "not of the language model");
  auto left = tensors.names().size();
  if (left == 0) {
    fail(
        ErrorKind::bad_file,
        tensors.place(),
        "there are no tensors of a language model in this {}",
        family->whole);
  }
  if (left < before) {
    log_info(
        "{}: {} of {} tensors are not of the language model and left out",
        tensors.place(),
        before - left,
        before);
  }
  tensors.rename_each(text_name);
  if (family->whole == "qwen3_vl_moe") {
    split_experts(tensors);
  }
  return std::move(tensors).finish();
}

}  // namespace mlxx::hub
