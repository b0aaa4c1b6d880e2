#include <algorithm>

#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/engine/loaded_model.h"
#include "mlxx/engine/model_pool.h"

// The adapters of a pool's models.
namespace mlxx::engine {
namespace {

AdapterEntry entry_of(
    const std::string& model,
    const std::filesystem::path& path,
    const adapters::AdapterInfo& info) {
  return {
      .model = model,
      .name = info.name,
      .folder = path.filename().string(),
      .format = info.format,
      .dora = info.dora,
      .rank = info.highest_rank,
      .modules = info.modules,
      .bytes = info.bytes};
}

// What is mounted takes what is in its files and the same as float32.
size_t predicted_bytes(const std::filesystem::path& folder) {
  size_t bytes = 0;
  for (const char* name :
       {"adapters.safetensors", "adapter_model.safetensors"}) {
    std::error_code missing;
    auto size = std::filesystem::file_size(folder / name, missing);
    bytes = std::max<size_t>(bytes, missing ? 0 : size);
  }
  return 3 * bytes;
}

}  // namespace

AdapterEntry ModelPool::mount(
    LoadedModel& entry,
    const std::string& name,
    const std::filesystem::path& path) {
  if (!entry.runner) {
    fail(
        ErrorKind::invalid_request,
        "adapter",
        "\"{}\" makes no answers that an adapter could change",
        entry.name);
  }
  MemoryReservation expected =
      reserve("an adapter", entry.name, predicted_bytes(path));
  adapters::AdapterInfo info = entry.runner->adapters().mount(name, path);
  expected.release();
  entry.weight_bytes += info.bytes;
  weights_ += info.bytes;
  log_info("mounted the adapter {} on {}", name, entry.name);
  return entry_of(entry.name, path, info);
}

void ModelPool::mount_again(LoadedModel& entry, bool strict) {
  auto known = adapters_.find(entry.name);
  if (known == adapters_.end() || !entry.runner) {
    return;
  }
  std::erase_if(known->second, [&](const auto& adapter) {
    try {
      mount(entry, adapter.first, adapter.second);
      return false;
    } catch (const Error& error) {
      if (strict) {
        throw;
      }
      log_warning(
          "the adapter {} of {} is not mounted: {}",
          adapter.first,
          entry.name,
          error.what());
      return true;
    }
  });
}

AdapterEntry ModelPool::mount_adapter(
    const std::string& model,
    const std::string& name,
    const std::string& folder) {
  if (options_.adapters_folder.empty()) {
    fail(
        ErrorKind::unsupported,
        "adapter",
        "no folder was given that adapters may be mounted from");
  }
  // One plain name: nothing leads out of the folder.
  bool plain = !folder.empty() && folder.front() != '.' &&
      folder.size() <= 255 &&
      folder.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
  if (!plain) {
    fail(
        ErrorKind::invalid_request,
        "adapter",
        "'{}' is no name of a folder",
        folder);
  }
  const std::filesystem::path path = options_.adapters_folder / folder;
  if (!std::filesystem::is_directory(path)) {
    fail(
        ErrorKind::not_found,
        "adapter",
        "there is no folder '{}' among the adapters",
        folder);
  }
  LoadedModel& entry = find_or_load(model);
  AdapterEntry mounted;
  try {
    mounted = mount(entry, name, path);
  } catch (const Error& error) {
    // Who asked chose the files.
    if (error.kind() == ErrorKind::bad_file ||
        error.kind() == ErrorKind::unsupported) {
      throw Error(ErrorKind::invalid_request, error.what());
    }
    throw;
  }
  adapters_[entry.name][name] = path;
  return mounted;
}

void ModelPool::add_adapter(
    const std::string& model,
    const std::string& name,
    const std::filesystem::path& path) {
  const std::string known = list_->resolve(model);
  if (auto loaded = loaded_.find(known); loaded != loaded_.end()) {
    mount(*loaded->second, name, path);
  } else if (adapters_[known].contains(name)) {
    fail(
        ErrorKind::invalid_request,
        "adapter",
        "'{}' is mounted already",
        name);
  }
  adapters_[known][name] = path;
}

void ModelPool::unmount_adapter(
    const std::string& model,
    const std::string& name) {
  const std::string known = list_->resolve(model);
  auto of_model = adapters_.find(known);
  if (of_model == adapters_.end() || of_model->second.erase(name) == 0) {
    fail(
        ErrorKind::not_found,
        "adapter",
        "'{}' is not mounted on \"{}\"",
        name,
        known);
  }
  auto loaded = loaded_.find(known);
  if (loaded == loaded_.end()) {
    return;
  }
  LoadedModel& entry = *loaded->second;
  for (const auto& info : entry.runner->adapters().list()) {
    if (info.name == name) {
      entry.weight_bytes -= info.bytes;
      weights_ -= info.bytes;
    }
  }
  entry.runner->adapters().unmount(name);
  log_info("unmounted the adapter {} of {}", name, known);
}

std::vector<AdapterEntry> ModelPool::list_adapters() const {
  std::vector<AdapterEntry> all;
  for (const auto& [model, of_model] : adapters_) {
    auto loaded = loaded_.find(model);
    for (const auto& [name, path] : of_model) {
      AdapterEntry entry;
      entry.model = model;
      entry.name = name;
      entry.folder = path.filename().string();
      if (loaded != loaded_.end()) {
        for (const auto& info : loaded->second->runner->adapters().list()) {
          if (info.name == name) {
            entry = entry_of(model, path, info);
          }
        }
      }
      all.push_back(std::move(entry));
    }
  }
  return all;
}

}  // namespace mlxx::engine
