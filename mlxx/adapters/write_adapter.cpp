#include "mlxx/adapters/write_adapter.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "mlxx/adapters/peft_experts.h"
#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/base/paths.h"
#include "mlxx/core/safetensors_writer.h"

namespace mlxx::adapters {
namespace {

constexpr const char* kPlace = "adapter";

int rank_of(const LowRank& module) {
  return module.a.shape(1);
}

bool is_dora(const AdapterContent& content) {
  auto has = [](const LowRank& one) { return one.magnitude.has_value(); };
  if (content.modules.empty()) {
    fail(ErrorKind::invalid_request, kPlace, "has no modules to write");
  }
  bool any = std::ranges::any_of(content.modules, has);
  if (any && !std::ranges::all_of(content.modules, has)) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "is DoRA in some modules and LoRA in others, which no file can say");
  }
  return any;
}

mx::array filled_up(const mx::array& array, int axis, int size) {
  int more = size - array.shape(axis);
  if (more == 0) {
    return array;
  }
  std::vector<std::pair<int, int>> padding(array.ndim(), {0, 0});
  padding[static_cast<size_t>(axis)].second = more;
  return mx::pad(array, padding, mx::array(0, array.dtype()));
}

void write_config(const std::filesystem::path& folder, const Json& config) {
  write_file_atomically(folder / "adapter_config.json", config.dump(4) + "\n");
}

// Of PEFT, for a module whose transformers name is not mlx-lm's.
std::string peft_name(const std::string& module) {
  constexpr std::string_view kGpt2 = "model.h.";
  return module.starts_with(kGpt2)
      ? fmt::format("transformer.{}", module.substr(6))
      : module;
}

// Embeddings: a [count, r] is their row, b [r, size]; PEFT's names tell.
bool is_embedding(const std::string& module) {
  size_t dot = module.rfind('.');
  std::string leaf = dot == std::string::npos ? module : module.substr(dot + 1);
  return leaf.starts_with("embed") || leaf == "wte" || leaf == "wpe";
}

}  // namespace

void write_mlx_adapter(
    const std::filesystem::path& folder,
    const AdapterContent& content) {
  bool dora = is_dora(content);
  int rank = 0;
  for (const LowRank& one : content.modules) {
    rank = std::max(rank, rank_of(one));
  }
  float scale = content.modules.front().scale;
  SafetensorsArrays arrays;
  for (const LowRank& one : content.modules) {
    bool stacked = one.a.ndim() == 3;
    mx::array b = filled_up(one.b, stacked ? 2 : 0, rank);
    if (one.scale != scale) {
      b = mx::multiply(b, mx::array(one.scale / scale, b.dtype()));
    }
    arrays.emplace_back(one.module + ".lora_a", filled_up(one.a, 1, rank));
    arrays.emplace_back(one.module + ".lora_b", b);
    if (one.magnitude) {
      arrays.emplace_back(one.module + ".m", *one.magnitude);
    }
  }
  Json parameters = {
      {"rank", rank},
      {"scale", scale},
      {"dropout", content.dropout}};
  if (!content.keys.empty()) {
    parameters["keys"] = content.keys;
  }
  Json config = {
      {"fine_tune_type", dora ? "dora" : "lora"},
      {"num_layers", content.num_layers},
      {"lora_parameters", parameters}};
  if (!content.base_model.empty()) {
    config["model"] = content.base_model;
  }
  make_folder(folder);
  write_safetensors(
      folder / "adapters.safetensors",
      arrays,
      {{"format", "mlx"}});
  write_config(folder, config);
}

void write_peft_adapter(
    const std::filesystem::path& folder,
    const AdapterContent& content) {
  bool dora = is_dora(content);
  std::vector<LowRank> modules = content.modules;
  for (LowRank& one : modules) {
    if (dora && is_embedding(one.module)) {
      fail(
          ErrorKind::unsupported,
          "PEFT layout",
          "'{}' is DoRA of an embedding, which PEFT computes in another way",
          one.module);
    }
  }
  modules = part_experts(modules);
  auto alpha_of = [&](const LowRank& one) {
    double rank = rank_of(one);
    return one.scale * (content.rank_stabilized ? std::sqrt(rank) : rank);
  };
  int rank = rank_of(content.modules.front());
  // Of matrices [in, r]; of stacks [experts, r, in]: both have it second.
  double alpha = alpha_of(content.modules.front());
  Json ranks = Json::object();
  Json alphas = Json::object();
  std::vector<std::string> targets;
  SafetensorsArrays arrays;
  for (const LowRank& one : modules) {
    std::string name = peft_name(one.module);
    std::string start = "base_model.model." + name;
    bool embedding = is_embedding(name);
    arrays.emplace_back(
        start + (embedding ? ".lora_embedding_A" : ".lora_A.weight"),
        mx::transpose(one.a));
    arrays.emplace_back(
        start + (embedding ? ".lora_embedding_B" : ".lora_B.weight"),
        mx::transpose(one.b));
    if (one.magnitude) {
      arrays.emplace_back(start + ".lora_magnitude_vector", *one.magnitude);
    }
    targets.push_back(name);
    if (rank_of(one) != rank) {
      ranks[name] = rank_of(one);
    }
    if (alpha_of(one) != alpha) {
      alphas[name] = alpha_of(one);
    }
  }
  Json config = {
      {"peft_type", "LORA"},
      {"task_type", "CAUSAL_LM"},
      {"r", rank},
      {"lora_alpha", alpha},
      {"lora_dropout", content.dropout},
      {"use_rslora", content.rank_stabilized},
      {"use_dora", dora},
      {"bias", "none"},
      {"fan_in_fan_out", false},
      {"inference_mode", true},
      {"init_lora_weights", true},
      {"modules_to_save", nullptr},
      {"layers_to_transform", nullptr},
      {"rank_pattern", ranks},
      {"alpha_pattern", alphas},
      {"target_modules", targets},
      {"base_model_name_or_path", content.base_model}};
  make_folder(folder);
  write_safetensors(
      folder / "adapter_model.safetensors",
      arrays,
      {{"format", "pt"}});
  write_config(folder, config);
}

}  // namespace mlxx::adapters
