#include "mlxx/engine/model_list.h"

#include <algorithm>

#include "mlxx/base/error.h"
#include "mlxx/base/utf8.h"
#include "mlxx/hub/catalogue.h"
#include "mlxx/hub/model_name.h"
#include "mlxx/hub/resolve.h"
#include "mlxx/hub/snapshot.h"

namespace mlxx::engine {

namespace fs = std::filesystem;

namespace {

constexpr size_t kLongestName = 256;

void check_name(const std::string& name) {
  const bool plain = !name.empty() && name.size() <= kLongestName &&
      is_valid_utf8(name) && std::ranges::none_of(name, [](unsigned char c) {
        return c < 0x20 || c == 0x7f;
      });
  if (!plain) {
    fail(
        ErrorKind::invalid_request,
        "model name",
        "must be 1 to {} bytes of UTF-8 without control characters",
        kLongestName);
  }
}

std::string name_of_path(fs::path path) {
  if (!path.has_filename()) {
    path = path.parent_path();
  }
  return path.extension() == ".gguf" ? path.stem().string()
                                     : path.filename().string();
}

bool is_known_by_name(const std::string& model) {
  std::error_code ignored;
  return hub::find_in_catalogue(model) ||
      (hub::parse_repo_name(model) && !fs::exists(model, ignored));
}

}  // namespace

NamedModel named_model(const std::string& argument) {
  std::error_code ignored;
  const size_t equals = argument.find('=');
  if (equals != argument.npos && !fs::exists(argument, ignored)) {
    NamedModel model{argument.substr(0, equals), {}};
    check_name(model.name);
    model.path = hub::resolve_model(argument.substr(equals + 1));
    return model;
  }
  fs::path path = hub::resolve_model(argument);
  if (is_known_by_name(argument)) {
    return {argument, std::move(path)};
  }
  std::string name = name_of_path(fs::absolute(path).lexically_normal());
  return {std::move(name), std::move(path)};
}

namespace {

bool is_gguf(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.path().extension() == ".gguf" && entry.is_regular_file(ignored);
}

// What can be read of a folder; a subfolder that cannot is no reason to stop.
std::vector<fs::directory_entry> entries_of(
    const fs::path& folder,
    std::error_code& error) {
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    entries.push_back(*at);
  }
  return entries;
}

void add_subfolder(const fs::path& folder, std::vector<NamedModel>& models) {
  const std::string format = hub::weight_format(folder);
  const std::string name = folder.filename().string();
  if (format == "safetensors") {
    models.push_back({name, folder});
    return;
  }
  if (format != "gguf") {
    return;
  }
  std::error_code ignored;
  auto files = entries_of(folder, ignored);
  std::erase_if(files, [](const auto& entry) { return !is_gguf(entry); });
  for (const auto& file : files) {
    models.push_back(
        {files.size() == 1
             ? name
             : fmt::format("{}/{}", name, file.path().stem().string()),
         file.path()});
  }
}

}  // namespace

std::vector<NamedModel> models_in_folder(const fs::path& folder) {
  std::error_code error;
  std::vector<NamedModel> models;
  for (const auto& entry : entries_of(folder, error)) {
    std::error_code ignored;
    if (entry.is_directory(ignored)) {
      add_subfolder(entry.path(), models);
    } else if (is_gguf(entry)) {
      models.push_back({entry.path().stem().string(), entry.path()});
    }
  }
  if (error || models.empty()) {
    fail(
        ErrorKind::not_found,
        folder.string(),
        "{}",
        error ? error.message() : "holds no model");
  }
  std::ranges::sort(models, {}, &NamedModel::name);
  return models;
}

struct ModelList::Entry {
  Entry(NamedModel model, int64_t written)
      : named(std::move(model)), created(written) {}

  const NamedModel named;
  const int64_t created;
  std::atomic<bool> loaded = false;
  std::mutex mutex;  // of `opened`
  std::optional<OpenedText> opened;
};

ModelList::ModelList(ModelListOptions options)
    : text_options_(std::move(options.text)),
      download_(std::move(options.download)) {
  if (options.models.empty()) {
    fail(ErrorKind::invalid_request, "models", "there is none to serve");
  }
  for (NamedModel& model : options.models) {
    check_name(model.name);
    if (find(model.name)) {
      fail(
          ErrorKind::invalid_request,
          "models",
          "two have the name \"{}\": give one another, as in NAME=MODEL",
          model.name);
    }
    const int64_t created = unix_time_of(model.path);
    entries_.push_back(std::make_shared<Entry>(std::move(model), created));
  }
}

ModelList::~ModelList() = default;

std::vector<ListedModel> ModelList::list() const {
  std::lock_guard lock(mutex_);
  std::vector<ListedModel> models;
  for (const auto& entry : entries_) {
    models.push_back({entry->named.name, entry->created, entry->loaded});
  }
  return models;
}

std::shared_ptr<ModelList::Entry> ModelList::find(
    const std::string& name) const {
  std::lock_guard lock(mutex_);
  if (name.empty()) {
    return entries_.front();
  }
  for (const auto& entry : entries_) {
    if (entry->named.name == name) {
      return entry;
    }
  }
  return nullptr;
}

void ModelList::fail_unknown(const std::string& name) const {
  check_name(name);
  constexpr size_t kNamed = 300;  // bytes of what there is
  std::string names;
  for (const auto& model : list()) {
    if (names.size() > kNamed) {
      names.append(", ...");
      break;
    }
    names.append(names.empty() ? "" : ", ").append(model.name);
  }
  fail(
      ErrorKind::not_found,
      "model",
      "there is no model \"{}\" here, but {}",
      name,
      names);
}

std::shared_ptr<ModelList::Entry> ModelList::find_or_download(
    const std::string& name) {
  if (auto entry = find(name)) {
    return entry;
  }
  const bool may_be_got = download_ && name.size() <= kLongestName &&
      (hub::find_in_catalogue(name) || hub::parse_repo_name(name));
  if (!may_be_got) {
    fail_unknown(name);
  }
  fs::path path = download_(name);
  const int64_t created = unix_time_of(path);
  auto fresh =
      std::make_shared<Entry>(NamedModel{name, std::move(path)}, created);
  std::lock_guard lock(mutex_);
  // Somebody else may have asked for the same meanwhile.
  for (const auto& entry : entries_) {
    if (entry->named.name == name) {
      return entry;
    }
  }
  entries_.push_back(fresh);
  return fresh;
}

const OpenedText& ModelList::read(Entry& entry) {
  std::lock_guard lock(entry.mutex);
  if (!entry.opened) {
    ModelTextOptions options = text_options_;
    options.name = entry.named.name;
    entry.opened = read_model_text(open_model_files(entry.named.path), options);
  }
  return *entry.opened;
}

std::shared_ptr<const ModelText> ModelList::text(const std::string& name) {
  return read(*find_or_download(name)).text;
}

ModelList::Opened ModelList::open(const std::string& name) {
  auto entry = find(name);
  if (!entry) {
    fail_unknown(name);
  }
  return {entry->named.name, open_model_files(entry->named.path), read(*entry)};
}

std::string ModelList::resolve(const std::string& name) const {
  auto entry = find(name);
  if (!entry) {
    fail_unknown(name);
  }
  return entry->named.name;
}

void ModelList::set_loaded(const std::string& name, bool loaded) {
  if (auto entry = find(name)) {
    entry->loaded = loaded;
  }
}

}  // namespace mlxx::engine
