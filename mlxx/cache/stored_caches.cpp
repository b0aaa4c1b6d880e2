#include "mlxx/cache/stored_caches.h"

#include <nlohmann/json.hpp>

#include "mlxx/base/json.h"
#include "mlxx/core/safetensors.h"
#include "mlxx/core/safetensors_writer.h"

namespace mlxx::cache {
namespace {

constexpr int kVersion = 1;
constexpr const char* kLayers = "mlxx_cache";
// Parts within parts: a composite of padded ones of arrays.
constexpr int kDeepest = 4;
constexpr size_t kMostLayers = 4096;

// The arrays are taken out under their names; the rest is JSON.
Json describe(
    const StoredState& state,
    const std::string& name,
    SafetensorsArrays& arrays) {
  Json parts = Json::array();
  for (size_t i = 0; i < state.parts.size(); ++i) {
    parts.push_back(
        describe(state.parts[i], fmt::format("{}.{}", name, i), arrays));
  }
  for (size_t i = 0; i < state.arrays.size(); ++i) {
    arrays.emplace_back(
        fmt::format("{}:{}", name, i),
        mx::contiguous(state.arrays[i]));
  }
  return {
      {"kind", state.kind},
      {"numbers", state.numbers},
      {"arrays", state.arrays.size()},
      {"parts", std::move(parts)}};
}

StoredState read_state(
    const SafetensorsFile& file,
    const JsonView& view,
    const std::string& name,
    int depth) {
  StoredState state;
  state.kind = view.string("kind");
  for (const Json& number : view.json().value("numbers", Json::array())) {
    if (!number.is_number_integer()) {
      view.fail_at("numbers", "must be whole numbers");
    }
    state.numbers.push_back(number.get<int64_t>());
  }
  auto count = view.integer("arrays", 0, 64);
  for (int64_t i = 0; i < count; ++i) {
    std::string array = fmt::format("{}:{}", name, i);
    const SafetensorsEntry* entry = file.find(array);
    if (!entry) {
      view.fail_at("arrays", fmt::format("'{}' is missing", array));
    }
    state.arrays.push_back(file.load(*entry));
  }
  const Json parts = view.json().value("parts", Json());
  if (!parts.is_array() || parts.size() > kMostLayers || depth == 0) {
    view.fail_at("parts", "must be an array, not too deep");
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].is_object()) {
      view.fail_at("parts", "must be objects");
    }
    state.parts.push_back(read_state(
        file,
        JsonView(parts[i], view.place()),
        fmt::format("{}.{}", name, i),
        depth - 1));
  }
  return state;
}

}  // namespace

void save_caches(
    const std::filesystem::path& path,
    const CacheList& caches,
    const CacheNotes& notes) {
  SafetensorsArrays arrays;
  Json layers = Json::array();
  for (size_t i = 0; i < caches.size(); ++i) {
    layers.push_back(describe(caches[i]->store(), std::to_string(i), arrays));
  }
  SafetensorsMetadata metadata(notes.begin(), notes.end());
  metadata[kLayers] =
      Json({{"version", kVersion}, {"layers", std::move(layers)}}).dump();
  write_safetensors(path, arrays, metadata);
}

CacheNotes load_caches(const std::filesystem::path& path, CacheList& caches) {
  SafetensorsFile file(path);
  std::string place = path.string();
  CacheNotes notes = file.metadata();
  auto found = notes.find(kLayers);
  if (found == notes.end()) {
    fail(ErrorKind::bad_file, place, "holds no caches");
  }
  Json description = parse_json(found->second, place);
  if (!description.is_object() || !description.contains("layers") ||
      !description["layers"].is_array()) {
    fail(ErrorKind::bad_file, place, "its list of layers is damaged");
  }
  JsonView view(description, place);
  view.integer("version", kVersion, kVersion);
  const Json& layers = description["layers"];
  if (layers.size() != caches.size()) {
    fail(
        ErrorKind::bad_file,
        place,
        "has {} layers, the model has {}",
        layers.size(),
        caches.size());
  }
  // First into copies, so that an error leaves the caches as they were.
  CacheList restored;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!layers[i].is_object()) {
      fail(ErrorKind::bad_file, place, "layer {} is damaged", i);
    }
    restored.push_back(caches[i]->empty_copy());
    restored.back()->restore(read_state(
        file,
        JsonView(layers[i], place),
        std::to_string(i),
        kDeepest));
  }
  caches = std::move(restored);
  notes.erase(kLayers);
  return notes;
}

}  // namespace mlxx::cache
