#include "mlxx/train/save_trained.h"

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "mlxx/adapters/write_adapter.h"
#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/base/paths.h"
#include "mlxx/core/safetensors_writer.h"

namespace mlxx::train {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFile = "adapters.safetensors";

// By number.
std::vector<fs::path> numbered_files(const fs::path& folder) {
  constexpr size_t kDigits = 7;
  std::vector<std::pair<int64_t, fs::path>> numbered;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const size_t digits = name.find_first_not_of("0123456789");
    if (digits >= kDigits && digits != std::string::npos && digits < 19 &&
        name.substr(digits) == std::string("_") + kFile) {
      numbered.emplace_back(std::stoll(name), entry.path());
    }
  }
  std::ranges::sort(numbered);
  std::vector<fs::path> files;
  for (auto& [number, file] : numbered) {
    files.push_back(std::move(file));
  }
  return files;
}

// Where a parameter goes in mlx-lm's tree: a name, and the rows' place in it
// where several here are one matrix there.
struct ReferencePlace {
  std::string name;
  size_t part = 0;
};

std::pair<std::string, std::string> split_leaf(const std::string& name) {
  size_t dot = std::min(name.rfind('.'), name.size());
  return {name.substr(0, dot), name.substr(dot)};
}

// Of all parameters of `model` by module.
std::map<std::string, ReferencePlace> reference_modules(
    const models::Model& model) {
  std::map<const Parameter*, std::string> own;
  model.visit([&](const std::string& name, const Parameter& parameter) {
    own[&parameter] = split_leaf(name).first;
  });
  std::map<std::string, ReferencePlace> places;
  for (const auto& module : adapters::adaptable_modules(model)) {
    for (size_t part = 0; part < module.weights.size(); ++part) {
      places[own.at(module.weights[part])] = {module.name, part};
    }
  }
  return places;
}

SafetensorsArrays in_reference_form(
    const FullParameters& parameters,
    const models::Model& model) {
  constexpr std::string_view kWrapper = "language_model.";
  auto modules = reference_modules(model);
  bool wrapped = std::ranges::any_of(modules, [&](const auto& entry) {
    return entry.second.name.starts_with(kWrapper) &&
        !entry.first.starts_with(kWrapper);
  });
  std::map<std::string, std::map<size_t, mx::array>> parts;
  for (size_t i = 0; i < parameters.names().size(); ++i) {
    auto [module, leaf] = split_leaf(parameters.names()[i]);
    auto found = modules.find(module);
    ReferencePlace place = found != modules.end()
        ? found->second
        : ReferencePlace{fmt::format("{}{}", wrapped ? kWrapper : "", module)};
    parts[place.name + leaf].emplace(place.part, parameters.values()[i]);
  }
  SafetensorsArrays arrays;
  for (const auto& [name, of_name] : parts) {
    std::vector<mx::array> rows;
    for (const auto& [part, value] : of_name) {
      rows.push_back(value);
    }
    arrays.emplace_back(
        name,
        rows.size() == 1 ? rows[0] : mx::concatenate(rows, 0));
  }
  return arrays;
}

}  // namespace

void save_adapters(
    const LoraAdapters& adapters,
    const std::filesystem::path& folder,
    AdapterLayout layout,
    const std::string& base_model) {
  adapters::AdapterContent content;
  content.modules = adapters.low_rank();
  content.dropout = adapters.options().dropout;
  int layers = adapters.plan().num_layers;
  content.num_layers = layers < 1 ? -1 : layers;
  content.keys = adapters.plan().keys;
  content.rank_stabilized = adapters.options().rank_stabilized;
  content.base_model = base_model;
  if (layout == AdapterLayout::peft) {
    adapters::write_peft_adapter(folder, content);
  } else {
    adapters::write_mlx_adapter(folder, content);
  }
}

void save_numbered(
    const std::filesystem::path& folder,
    int64_t iteration,
    int keep) {
  if (keep == 0) {
    return;
  }
  const fs::path whole = folder / kFile;
  const fs::path target = folder / fmt::format("{:07d}_{}", iteration, kFile);
  const fs::path made =
      folder / fmt::format(".{}.new", target.filename().string());
  std::error_code error;
  fs::remove(made, error);
  // One file under two names: the next save puts another in place of the first.
  fs::create_hard_link(whole, made, error);
  if (error) {
    fs::copy_file(whole, made, error);
  }
  if (!error) {
    fs::rename(made, target, error);
  }
  if (error) {
    fail(
        ErrorKind::internal,
        target.string(),
        "cannot be written, {}",
        error.message());
  }
  auto all = numbered_files(folder);
  for (size_t i = 0; keep > 0 && i + static_cast<size_t>(keep) < all.size();
       ++i) {
    fs::remove(all[i], error);
  }
}

void remove_numbered(const std::filesystem::path& folder) {
  for (const auto& file : numbered_files(folder)) {
    std::error_code ignored;
    fs::remove(file, ignored);
  }
}

void save_full(
    const FullParameters& parameters,
    const models::Model& model,
    const std::filesystem::path& folder,
    const std::string& base_model) {
  Json config = {
      {"fine_tune_type", "full"},
      {"lora_parameters", nullptr},
      {"model", base_model},
      {"num_layers",
       parameters.num_layers() < 1 ? -1 : parameters.num_layers()}};
  make_folder(folder);
  write_safetensors(
      folder / kFile,
      in_reference_form(parameters, model),
      {{"format", "mlx"}});
  write_file_atomically(folder / "adapter_config.json", config.dump(4) + "\n");
}

}  // namespace mlxx::train
