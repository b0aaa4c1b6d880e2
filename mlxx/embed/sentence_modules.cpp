#include "mlxx/embed/sentence_modules.h"

#include <algorithm>
#include <string_view>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/base/mapped_file.h"

namespace mlxx::embed {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxConfig = size_t{4} << 20;
constexpr int kMaxSize = 1 << 20;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

Json read_json(const fs::path& path) {
  return parse_json(read_file(path, kMaxConfig), path.string());
}

// The last word of "sentence_transformers.models.Pooling".
std::string class_name(const std::string& type) {
  return type.substr(type.rfind('.') + 1);
}

// A folder beside modules.json, or that folder itself: no way out of it.
fs::path module_folder(const fs::path& folder, const JsonView& module) {
  std::string path = module.string_or("path", "");
  bool is_plain = std::ranges::all_of(path, [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-';
  });
  if (!is_plain) {
    module.fail_at("path", fmt::format("is no plain name but '{}'", path));
  }
  return path.empty() ? folder : folder / path;
}

struct PoolingName {
  std::string_view key;   // of older files, true if it is meant
  std::string_view name;  // "pooling_mode" of newer ones
  std::optional<Pooling> pooling;
};

constexpr PoolingName kPoolings[] = {
    {"pooling_mode_cls_token", "cls", Pooling::cls},
    {"pooling_mode_max_tokens", "max", std::nullopt},
    {"pooling_mode_mean_tokens", "mean", Pooling::mean},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", std::nullopt},
    {"pooling_mode_weightedmean_tokens", "weightedmean", std::nullopt},
    {"pooling_mode_lasttoken", "lasttoken", Pooling::last_token},
};

std::vector<std::string> pooling_names(const JsonView& config) {
  if (config.has("pooling_mode")) {
    if (config.json().at("pooling_mode").is_array()) {
      return config.strings_or_empty("pooling_mode");
    }
    return {config.string("pooling_mode")};
  }
  std::vector<std::string> names;
  for (const auto& known : kPoolings) {
    if (config.boolean_or(known.key, false)) {
      names.emplace_back(known.name);
    }
  }
  if (names.empty()) {
    names.emplace_back("mean");
  }
  return names;
}

void read_pooling(const fs::path& folder, SentenceModules& modules) {
  fs::path path = folder / "config.json";
  Json json = read_json(path);
  JsonView config(json, path.string());
  auto names = pooling_names(config);
  if (names.size() != 1) {
    fail(
        ErrorKind::unsupported,
        path.string(),
        "asks for {} poolings side by side, one can be computed",
        names.size());
  }
  for (const auto& known : kPoolings) {
    if (known.name == names[0]) {
      modules.pooling = known.pooling;
    }
  }
  if (!modules.pooling) {
    fail(
        ErrorKind::unsupported,
        path.string(),
        "pooling '{}' is not mean, cls or lasttoken",
        names[0]);
  }
  const char* key = config.has("embedding_dimension")
      ? "embedding_dimension"
      : "word_embedding_dimension";
  modules.pooled_size =
      static_cast<int>(config.integer_or(key, 0, 0, kMaxSize));
  modules.pools_prompt = config.boolean_or("include_prompt", true);
}

void read_module_list(const fs::path& folder, SentenceModules& modules) {
  fs::path path = folder / "modules.json";
  Json list = read_json(path);
  if (!list.is_array() || list.empty()) {
    fail(ErrorKind::bad_file, path.string(), "is no list of modules");
  }
  // Transformer, Pooling, any number of Dense, perhaps Normalize.
  enum Stage { start, transformer, pooling, end };
  Stage stage = start;
  for (size_t i = 0; i < list.size(); ++i) {
    JsonView module(list[i], fmt::format("{}: {}", path.string(), i));
    std::string type = module.string("type");
    std::string name = class_name(type);
    fs::path where = module_folder(folder, module);
    if (stage == start && name == "Transformer") {
      modules.transformer = where;
      stage = transformer;
    } else if (stage == transformer && name == "Pooling") {
      read_pooling(where, modules);
      stage = pooling;
    } else if (stage == pooling && name == "Dense") {
      modules.dense.push_back(where);
    } else if (stage == pooling && name == "Normalize") {
      modules.normalizes = true;
      stage = end;
    } else {
      fail(
          ErrorKind::unsupported,
          path.string(),
          "module {} is '{}'; Transformer, Pooling, any number of Dense and "
          "perhaps Normalize can be computed, in this order",
          i,
          type);
    }
  }
  if (stage < pooling) {
    fail(
        ErrorKind::unsupported,
        path.string(),
        "has no Pooling: the model gives no vector for a text");
  }
}

// Named after the kind of model in older files.
void read_transformer_settings(SentenceModules& modules) {
  for (const char* name :
       {"sentence_bert_config.json",
        "sentence_roberta_config.json",
        "sentence_xlm-roberta_config.json"}) {
    fs::path path = modules.transformer / name;
    if (!is_file(path)) {
      continue;
    }
    Json json = read_json(path);
    JsonView config(json, path.string());
    modules.max_tokens =
        static_cast<int>(config.integer_or("max_seq_length", 0, 1, INT32_MAX));
    modules.lower_case = config.boolean_or("do_lower_case", false);
    return;
  }
}

void read_prompts(const fs::path& folder, SentenceModules& modules) {
  fs::path path = folder / "config_sentence_transformers.json";
  if (!is_file(path)) {
    return;
  }
  Json json = read_json(path);
  JsonView config(json, path.string());
  if (config.has("prompts")) {
    JsonView prompts = config.object("prompts");
    for (const auto& [name, text] : prompts.json().items()) {
      modules.prompts.emplace_back(name, prompts.string_or(name, ""));
    }
  }
  if (config.has("default_prompt_name")) {
    std::string name = config.string("default_prompt_name");
    if (std::ranges::find(
            modules.prompts,
            name,
            &std::pair<std::string, std::string>::first) ==
        modules.prompts.end()) {
      config.fail_at(
          "default_prompt_name",
          fmt::format("names '{}', which is not among the prompts", name));
    }
    modules.default_prompt = name;
  }
}

}  // namespace

SentenceModules read_sentence_modules(const fs::path& folder) {
  SentenceModules modules;
  modules.transformer = folder;
  modules.has_list = is_file(folder / "modules.json");
  if (modules.has_list) {
    read_module_list(folder, modules);
  }
  read_transformer_settings(modules);
  read_prompts(folder, modules);
  return modules;
}

DenseModule read_dense_module(const fs::path& folder) {
  fs::path path = folder / "config.json";
  Json json = read_json(path);
  JsonView config(json, path.string());
  DenseModule dense{
      .in_features =
          static_cast<int>(config.integer("in_features", 1, kMaxSize)),
      .out_features =
          static_cast<int>(config.integer("out_features", 1, kMaxSize)),
      .bias = config.boolean_or("bias", true),
      .tanh = false};
  std::string activation = class_name(
      config.string_or("activation_function", "torch.nn.modules.Tanh"));
  dense.tanh = activation == "Tanh";
  if (!dense.tanh && activation != "Identity") {
    fail(
        ErrorKind::unsupported,
        path.string(),
        "activation_function '{}' is not Identity or Tanh",
        activation);
  }
  constexpr std::string_view kVector = "sentence_embedding";
  for (const char* key : {"module_input_name", "module_output_name"}) {
    if (config.string_or(key, kVector) != kVector) {
      fail(
          ErrorKind::unsupported,
          path.string(),
          "{} is '{}', not the text's vector",
          key,
          config.string(key));
    }
  }
  if (config.boolean_or("use_residual", false)) {
    fail(
        ErrorKind::unsupported,
        path.string(),
        "use_residual is not implemented");
  }
  return dense;
}

}  // namespace mlxx::embed
