#include "mlxx/hub/safetensors_shards.h"

#include <algorithm>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/base/log.h"
#include "mlxx/base/mapped_file.h"

namespace mlxx::hub {

namespace {

namespace fs = std::filesystem;

constexpr auto kIndex = "model.safetensors.index.json";
constexpr auto kSingle = "model.safetensors";

std::set<std::string> file_names(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; it != end;
       it.increment(error)) {
    if (error) {
      break;
    }
    std::error_code ignored;
    std::string name = it->path().filename().string();
    if (!name.starts_with('.') && it->is_regular_file(ignored)) {
      names.insert(name);
    }
  }
  if (error) {
    fail(
        ErrorKind::bad_file,
        folder.string(),
        "cannot read the folder, {}",
        error.message());
  }
  return names;
}

struct Numbered {
  int number;
  int count;
};

// model-00002-of-00005.safetensors
std::optional<Numbered> parse_numbered(const std::string& name) {
  constexpr size_t kDigits = 5;
  constexpr std::string_view kStart = "model-", kMiddle = "-of-",
                             kEnd = ".safetensors";
  size_t length = kStart.size() + kMiddle.size() + kEnd.size() + 2 * kDigits;
  if (name.size() != length || !name.starts_with(kStart) ||
      !name.ends_with(kEnd) ||
      name.compare(kStart.size() + kDigits, kMiddle.size(), kMiddle) != 0) {
    return std::nullopt;
  }
  auto digits = [&](size_t at) {
    int value = 0;
    for (char c : std::string_view(name).substr(at, kDigits)) {
      value = c >= '0' && c <= '9' && value >= 0 ? value * 10 + (c - '0') : -1;
    }
    return value;
  };
  Numbered numbered{
      digits(kStart.size()),
      digits(kStart.size() + kDigits + kMiddle.size())};
  if (numbered.number < 1 || numbered.count < numbered.number) {
    return std::nullopt;
  }
  return numbered;
}

// The numbered sets of a folder, and what each lacks.
struct NumberedSet {
  std::vector<std::string> files;
  std::vector<std::string> missing;
};

std::map<int, NumberedSet> numbered_sets(const std::set<std::string>& names) {
  std::map<int, NumberedSet> sets;
  for (const auto& name : names) {
    if (auto numbered = parse_numbered(name)) {
      sets[numbered->count].files.push_back(name);
    }
  }
  for (auto& [count, set] : sets) {
    for (int i = 1; i <= count; ++i) {
      auto name = fmt::format("model-{:05}-of-{:05}.safetensors", i, count);
      if (!names.contains(name)) {
        set.missing.push_back(name);
      }
    }
  }
  return sets;
}

std::map<std::string, std::string> read_index(const fs::path& path) {
  Json json = parse_json(read_file(path, size_t{64} << 20), path.string());
  JsonView view(json, path.string());
  JsonView weights = view.object("weight_map");
  std::map<std::string, std::string> index;
  for (const auto& [tensor, file] : weights.json().items()) {
    if (!file.is_string()) {
      weights.fail_at(tensor, "must be a file name");
    }
    auto name = file.get<std::string>();
    bool is_plain = !name.empty() && !name.starts_with('.') &&
        name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
    if (!is_plain || !name.ends_with(".safetensors")) {
      weights.fail_at(
          tensor,
          fmt::format(
              "is in '{}', which is not the name of a safetensors file of the "
              "same folder",
              name));
    }
    index[tensor] = name;
  }
  if (index.empty()) {
    view.fail_at("weight_map", "is empty");
  }
  return index;
}

std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  size_t shown = std::min(names.size(), kShown);
  return fmt::format(
      "{}{}",
      fmt::join(names.begin(), names.begin() + shown, ", "),
      names.size() > shown ? fmt::format(" and {} more", names.size() - shown)
                           : "");
}

[[noreturn]] void fail_without_weights(
    const fs::path& folder,
    const std::set<std::string>& names) {
  for (const auto& name : names) {
    bool is_pickle = name.ends_with(".bin") || name.ends_with(".pt") ||
        name.ends_with(".pth") || name.ends_with(".ckpt");
    bool is_numpy = name.ends_with(".npz") || name.ends_with(".npy");
    if (is_pickle || is_numpy) {
      fail(
          ErrorKind::unsupported,
          folder.string(),
          "there are no safetensors weights, only '{}'{}",
          name,
          is_pickle ? "; pickles can run code and are never loaded"
                    : "; NumPy files are not loaded");
    }
  }
  for (const auto& name : names) {
    if (name.ends_with(".gguf")) {
      fail(
          ErrorKind::not_found,
          folder.string(),
          "the folder has no safetensors weights; name the file '{}' itself",
          name);
    }
  }
  for (const auto& name : names) {
    if (name.ends_with(".safetensors")) {
      fail(
          ErrorKind::not_found,
          folder.string(),
          "there is no model.safetensors or model-*-of-*.safetensors; '{}' is "
          "not taken for the model",
          name);
    }
  }
  fail(ErrorKind::not_found, folder.string(), "the folder has no weights");
}

// Rule 3, and what rule 2 falls back to.
std::vector<std::string> files_without_index(
    const fs::path& folder,
    const std::set<std::string>& names) {
  auto sets = numbered_sets(names);
  std::vector<const NumberedSet*> complete;
  for (const auto& [count, set] : sets) {
    if (set.missing.empty()) {
      complete.push_back(&set);
    }
  }
  size_t candidates = complete.size() + (names.contains(kSingle) ? 1 : 0);
  if (candidates > 1) {
    fail(
        ErrorKind::bad_file,
        folder.string(),
        "several sets of weights and no index that says which one is the "
        "model: {}",
        listed(
            {names.contains(kSingle) ? kSingle : complete[1]->files[0],
             complete[0]->files[0]}));
  }
  if (names.contains(kSingle)) {
    return {kSingle};
  }
  if (!complete.empty()) {
    return complete[0]->files;
  }
  if (!sets.empty()) {
    fail(
        ErrorKind::bad_file,
        folder.string(),
        "weight files are missing: {}",
        listed(sets.begin()->second.missing));
  }
  fail_without_weights(folder, names);
}

}  // namespace

SafetensorsShards find_safetensors_shards(const fs::path& folder) {
  auto names = file_names(folder);
  SafetensorsShards shards;
  std::vector<std::string> files;
  if (names.contains(kIndex)) {
    shards.index = read_index(folder / kIndex);
    std::set<std::string> wanted;
    for (const auto& [tensor, file] : shards.index) {
      wanted.insert(file);
    }
    std::vector<std::string> missing;
    std::ranges::set_difference(wanted, names, std::back_inserter(missing));
    if (missing.empty()) {
      files.assign(wanted.begin(), wanted.end());
    } else {
      shards.index.clear();
      try {
        files = files_without_index(folder, names);
      } catch (const Error&) {
        fail(
            ErrorKind::bad_file,
            (folder / kIndex).string(),
            "names files that are missing: {}",
            listed(missing));
      }
      log_warning(
          "{}: names missing files ({}) and was ignored; the weights are {}",
          (folder / kIndex).string(),
          listed(missing),
          listed(files));
    }
  } else {
    files = files_without_index(folder, names);
  }
  for (const auto& file : files) {
    shards.files.push_back(folder / file);
  }
  return shards;
}

}  // namespace mlxx::hub
