#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "mlxx/engine/model_files.h"
#include "mlxx/engine/model_texts.h"

namespace mlxx::engine {

struct NamedModel {
  std::string name;
  std::filesystem::path path;  // what hub::open_checkpoint() takes
};

// MODEL of a command line, or NAME=MODEL. Without a name of its own: a
// catalogue's or a repository's name as it is, else what a folder or a .gguf
// file is called. Errors: those of hub::resolve_model().
NamedModel named_model(const std::string& argument);

// Every folder with a model and every .gguf file that lies in `folder`, by
// name. not_found if there is none.
std::vector<NamedModel> models_in_folder(const std::filesystem::path& folder);

struct ModelListOptions {
  std::vector<NamedModel> models;  // at least one; the first is the default
  ModelTextOptions text;           // `name` is each model's own
  // Gets a model that is not in the list, by a name of the catalogue or of a
  // hub. Null: requests never download anything.
  std::function<std::filesystem::path(const std::string&)> download;
};

// The models that requests may name. Thread-safe.
class ModelList final : public ModelTexts {
 public:
  // invalid_request: a name is no plain text, is long or comes twice.
  explicit ModelList(ModelListOptions options);
  ~ModelList() override;

  std::vector<ListedModel> list() const override;
  std::shared_ptr<const ModelText> text(const std::string& name) override;

  // For who loads weights: the model's texts, and its files opened anew.
  // Nothing is downloaded here. Errors as text() gives them.
  struct Opened {
    std::string name;  // never ""
    ModelFiles files;
    OpenedText text;
  };
  Opened open(const std::string& name);
  // The name that `name` means, which is another for "" only. not_found.
  std::string resolve(const std::string& name) const;
  void set_loaded(const std::string& name, bool loaded);

 private:
  struct Entry;

  // Null if there is none.
  std::shared_ptr<Entry> find(const std::string& name) const;
  [[noreturn]] void fail_unknown(const std::string& name) const;
  std::shared_ptr<Entry> find_or_download(const std::string& name);
  const OpenedText& read(Entry& entry);

  const ModelTextOptions text_options_;
  const std::function<std::filesystem::path(const std::string&)> download_;
  mutable std::mutex mutex_;  // of the list, not of its entries
  std::vector<std::shared_ptr<Entry>> entries_;
};

}  // namespace mlxx::engine
