#include "mlxx/hub/text_files.h"

#include <algorithm>
#include <span>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/base/utf8.h"
#include "mlxx/core/foreign_file.h"
#include "mlxx/hub/python_floats.h"

namespace mlxx::hub {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTemplateBytes = size_t{4} << 20;
constexpr size_t kMaxTokenizerBytes = size_t{256} << 20;
constexpr std::string_view kMark = "\xEF\xBB\xBF";

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

void refuse_foreign(const std::string& text, const fs::path& path) {
  auto meaning =
      describe_foreign_file(std::as_bytes(std::span(text.data(), text.size())));
  if (meaning) {
    fail(ErrorKind::bad_file, path.string(), "not JSON but {}", *meaning);
  }
}

std::string read_template(const fs::path& path) {
  std::string text = read_file(path, kMaxTemplateBytes);
  if (text.starts_with(kMark)) {
    text.erase(0, kMark.size());
  }
  if (!is_valid_utf8(text)) {
    fail(ErrorKind::bad_file, path.string(), "not valid UTF-8");
  }
  return text;
}

using Templates = std::vector<std::pair<std::string, std::string>>;

void add_template(
    Templates& templates,
    const std::string& name,
    std::string source,
    const std::string& place) {
  if (std::ranges::find(templates, name, &Templates::value_type::first) !=
      templates.end()) {
    fail(ErrorKind::bad_file, place, "the template '{}' stands twice", name);
  }
  templates.emplace_back(name, std::move(source));
}

Templates template_files(const fs::path& folder) {
  Templates templates;
  if (is_file(folder / "chat_template.jinja")) {
    add_template(
        templates,
        "default",
        read_template(folder / "chat_template.jinja"),
        folder.string());
  }
  fs::path more = folder / "additional_chat_templates";
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator it(more, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".jinja" && is_file(it->path())) {
      paths.push_back(it->path());
    }
  }
  std::ranges::sort(paths);
  for (const auto& path : paths) {
    add_template(
        templates,
        path.stem().string(),
        read_template(path),
        more.string());
  }
  return templates;
}

// A template, a list of {"name", "template"}, or an object name -> template.
Templates templates_of(const Json& value, const std::string& place) {
  Templates templates;
  auto text = [&](const Json& item) {
    if (!item.is_string()) {
      fail(
          ErrorKind::bad_file,
          place,
          "a chat template must be a string, is {}",
          item.type_name());
    }
    return item.get<std::string>();
  };
  if (value.is_array()) {
    for (const Json& item : value) {
      JsonView view(item, place + ": chat_template");
      add_template(
          templates,
          view.string("name"),
          view.string("template"),
          place);
    }
  } else if (value.is_object()) {
    for (const auto& [name, item] : value.items()) {
      add_template(templates, name, text(item), place);
    }
  } else {
    add_template(templates, "default", text(value), place);
  }
  return templates;
}

Templates templates_in(const Json& json, const fs::path& path) {
  auto found = json.find("chat_template");
  return found == json.end() || found->is_null()
      ? Templates{}
      : templates_of(*found, path.string());
}

Templates read_templates(const fs::path& folder, const Json& config) {
  Templates templates = template_files(folder);
  fs::path json = folder / "chat_template.json";
  if (templates.empty() && is_file(json)) {
    templates = templates_in(read_json_object(json), json);
  }
  if (templates.empty()) {
    templates = templates_in(config, folder / "tokenizer_config.json");
  }
  return templates;
}

// Takes over what `config` lacks.
void merge_special_tokens(const fs::path& folder, Json& config) {
  fs::path path = folder / "special_tokens_map.json";
  if (!is_file(path)) {
    return;
  }
  Json map = read_json_object(path);
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    auto found = map.find(key);
    bool is_missing = !config.contains(key) || config.at(key).is_null();
    if (is_missing && found != map.end() && !found->is_null()) {
      config[key] = *found;
    }
  }
}

}  // namespace

Json read_json_object(const fs::path& path) {
  std::string text = read_file(path, size_t{64} << 20);
  refuse_foreign(text, path);
  if (text.empty()) {
    fail(ErrorKind::bad_file, path.string(), "the file is empty");
  }
  Json json = parse_json(without_python_floats(text), path.string());
  JsonView check(json, path.string());
  return json;
}

std::string read_tokenizer_json(const fs::path& folder) {
  fs::path path = folder / "tokenizer.json";
  if (is_file(path)) {
    std::string text = read_file(path, kMaxTokenizerBytes);
    refuse_foreign(text, path);
    if (text.empty()) {
      fail(ErrorKind::bad_file, path.string(), "the file is empty");
    }
    return text;
  }
  for (const char* name :
       {"tokenizer.model", "spiece.model", "tekken.json", "vocab.json"}) {
    if (is_file(folder / name)) {
      fail(
          ErrorKind::unsupported,
          folder.string(),
          "there is no tokenizer.json, only '{}', which is not read; convert "
          "it with transformers (save_pretrained of a fast tokenizer)",
          name);
    }
  }
  fail(ErrorKind::not_found, folder.string(), "there is no tokenizer.json");
}

TextFiles read_text_files(const fs::path& folder) {
  std::string tokenizer = read_tokenizer_json(folder);
  TextFiles text = read_text_beside_tokenizer(folder);
  text.tokenizer_json = std::move(tokenizer);
  return text;
}

TextFiles read_text_beside_tokenizer(const fs::path& folder) {
  TextFiles text;
  Json config = Json::object();
  fs::path path = folder / "tokenizer_config.json";
  if (is_file(path)) {
    config = read_json_object(path);
  }
  text.chat_templates = read_templates(folder, config);
  merge_special_tokens(folder, config);
  config.erase("chat_template");
  text.tokenizer_config_json = config.dump();
  return text;
}

}  // namespace mlxx::hub
