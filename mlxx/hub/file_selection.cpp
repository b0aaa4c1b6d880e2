#include "mlxx/hub/file_selection.h"

#include <algorithm>
#include <optional>

#include <fmt/ranges.h>
#include <fnmatch.h>

#include "mlxx/base/closest_match.h"
#include "mlxx/base/error.h"

namespace mlxx::hub {

namespace {

constexpr size_t kMaxNamesInMessage = 12;

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return lower;
}

bool ends_with_any(
    const std::string& name,
    std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](auto ending) {
    return name.ends_with(ending);
  });
}

bool is_pickle(const std::string& name) {
  return ends_with_any(
      lower_case(name),
      {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".msgpack", ".h5"});
}

bool is_in_root(const std::string& name) {
  return name.find('/') == std::string::npos;
}

// Configs, tokenizers and templates that lie beside the weights.
bool is_companion(const std::string& name) {
  return is_in_root(name) &&
      ends_with_any(name, {".json", ".jinja", ".txt", ".model", ".tiktoken"});
}

// What sentence-transformers keeps in a folder for each module after the
// first: 1_Pooling/config.json, 2_Dense/model.safetensors.
bool is_module_file(const std::string& name) {
  size_t digits = name.find_first_not_of("0123456789");
  size_t slash = name.find('/');
  if (digits == 0 || digits == std::string::npos || name[digits] != '_' ||
      slash == std::string::npos) {
    return false;
  }
  std::string_view file = std::string_view(name).substr(slash + 1);
  return file == "config.json" || file == "model.safetensors";
}

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

// model-00002-of-00005.gguf: "model" and "-of-00005.gguf" around the part.
struct PartName {
  std::string stem;
  std::string total;
  bool is_first;
};

std::optional<PartName> parse_part(const std::string& name) {
  // -NNNNN-of-NNNNN.gguf
  constexpr size_t kTail = 20;
  constexpr std::string_view kShape = "-00000-of-00000.gguf";
  if (name.size() <= kTail) {
    return std::nullopt;
  }
  std::string tail = name.substr(name.size() - kTail);
  for (size_t i = 0; i < kTail; ++i) {
    bool is_digit = tail[i] >= '0' && tail[i] <= '9';
    if (kShape[i] == '0' ? !is_digit : tail[i] != kShape[i]) {
      return std::nullopt;
    }
  }
  return PartName{
      name.substr(0, name.size() - kTail),
      tail.substr(6),
      tail.substr(1, 5) == "00001"};
}

bool is_later_part(const std::string& name) {
  auto part = parse_part(name);
  return part && !part->is_first;
}

std::string list_of(const std::vector<std::string>& names) {
  size_t shown = std::min(names.size(), kMaxNamesInMessage);
  std::string text = fmt::format(
      "{}",
      fmt::join(names.begin(), names.begin() + std::ptrdiff_t(shown), ", "));
  if (shown < names.size()) {
    text += fmt::format(" and {} more", names.size() - shown);
  }
  return text;
}

// "q4_1" in model.Q4_1.gguf or model-Q4_1-00001-of-00002.gguf, as a whole word.
bool has_tag(const std::string& name, const std::string& tag) {
  std::string text = lower_case(name);
  std::string wanted = lower_case(tag);
  auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  for (size_t at = text.find(wanted); at != std::string::npos;
       at = text.find(wanted, at + 1)) {
    size_t end = at + wanted.size();
    if ((at == 0 || !is_word(text[at - 1])) && end < text.size() &&
        !is_word(text[end])) {
      return true;
    }
  }
  return false;
}

const RepoFile* find_file(const RepoListing& listing, const std::string& name) {
  for (const RepoFile& file : listing.files) {
    if (file.name == name) {
      return &file;
    }
  }
  return nullptr;
}

std::vector<RepoFile> choose_by_pattern(
    const RepoListing& listing,
    const RepoName& name,
    const std::vector<std::string>& patterns) {
  std::vector<RepoFile> chosen;
  for (const std::string& pattern : patterns) {
    size_t found = 0;
    std::string refused;
    for (const RepoFile& file : listing.files) {
      if (matches(pattern, file.name)) {
        if (is_data_file(file.name)) {
          ++found;
        } else {
          refused = file.name;
        }
      }
    }
    if (found == 0 && !refused.empty()) {
      fail(
          ErrorKind::invalid_request,
          name.text(),
          "{} is no kind of file that only holds data, and is not taken",
          refused);
    }
    if (found == 0) {
      fail(
          ErrorKind::not_found,
          name.text(),
          "the model has no file '{}'",
          pattern);
    }
  }
  for (const RepoFile& file : listing.files) {
    bool wanted =
        std::any_of(patterns.begin(), patterns.end(), [&](const auto& pattern) {
          return matches(pattern, file.name);
        });
    if (wanted && is_data_file(file.name)) {
      chosen.push_back(file);
    }
  }
  return chosen;
}

std::vector<RepoFile> choose_parts(
    const RepoListing& listing,
    const RepoName& name,
    const std::string& first) {
  auto part = parse_part(first);
  std::vector<RepoFile> chosen;
  for (const RepoFile& file : listing.files) {
    auto other = parse_part(file.name);
    if (file.name == first ||
        (part && other && other->stem == part->stem &&
         other->total == part->total)) {
      chosen.push_back(file);
    }
  }
  if (chosen.empty()) {
    fail(
        ErrorKind::not_found,
        name.text(),
        "the model has no file '{}'",
        first);
  }
  return chosen;
}

std::vector<RepoFile> choose_safetensors(const RepoListing& listing) {
  auto pick = [&](auto is_weight) {
    std::vector<RepoFile> chosen;
    for (const RepoFile& file : listing.files) {
      if (is_in_root(file.name) && file.name.ends_with(".safetensors") &&
          is_weight(file.name)) {
        chosen.push_back(file);
      }
    }
    return chosen;
  };
  // Some repositories hold the weights a second time under another name.
  auto weights = pick([](const auto& n) { return n.starts_with("model"); });
  if (weights.empty()) {
    weights = pick([](const auto&) { return true; });
  }
  if (weights.empty()) {
    return {};
  }
  for (const RepoFile& file : listing.files) {
    if (is_companion(file.name) || is_module_file(file.name)) {
      weights.push_back(file);
    }
  }
  std::sort(weights.begin(), weights.end(), [](const auto& a, const auto& b) {
    return a.name < b.name;
  });
  return weights;
}

}  // namespace

bool is_data_file(const std::string& name) {
  return ends_with_any(
      lower_case(name),
      {".safetensors",
       ".gguf",
       ".json",
       ".jinja",
       ".txt",
       ".model",
       ".tiktoken"});
}

std::string choose_gguf(
    const std::vector<std::string>& names,
    const std::string& wanted,
    const std::string& place) {
  std::vector<std::string> firsts;
  for (const std::string& name : names) {
    if (name == wanted) {
      return name;
    }
    if (name.ends_with(".gguf") && !is_later_part(name)) {
      firsts.push_back(name);
    }
  }
  std::vector<std::string> fitting;
  for (const std::string& name : firsts) {
    // mmproj files are the eyes of a model, not the model.
    bool is_only_part = lower_case(name).find("mmproj") != std::string::npos;
    if (wanted.empty() ? !is_only_part : has_tag(name, wanted)) {
      fitting.push_back(name);
    }
  }
  if (fitting.size() == 1) {
    return fitting.front();
  }
  if (fitting.empty()) {
    auto near = closest_match(wanted, names);
    fail(
        ErrorKind::not_found,
        place,
        "the model has no file '{}'{}{}",
        wanted,
        near ? fmt::format(", did you mean {}?", *near) : "; it has ",
        near ? "" : list_of(firsts));
  }
  fail(
      ErrorKind::invalid_request,
      place,
      "has several GGUF files, choose one as {}:FILE of {}",
      place.substr(0, place.find(':')),
      list_of(fitting));
}

std::vector<RepoFile> choose_files(
    const RepoListing& listing,
    const RepoName& name,
    const FileChoice& choice) {
  if (!choice.include.empty()) {
    return choose_by_pattern(listing, name, choice.include);
  }
  std::vector<std::string> gguf;
  std::vector<std::string> pickles;
  for (const RepoFile& file : listing.files) {
    if (file.name.ends_with(".gguf")) {
      gguf.push_back(file.name);
    }
    if (is_pickle(file.name)) {
      pickles.push_back(file.name);
    }
  }
  if (!name.file.empty()) {
    if (const RepoFile* file = find_file(listing, name.file)) {
      if (!is_data_file(file->name)) {
        fail(
            ErrorKind::invalid_request,
            name.text(),
            "{} is no kind of file that only holds data, and is not taken",
            file->name);
      }
    }
    if (gguf.empty()) {
      fail(
          ErrorKind::not_found,
          name.text(),
          "the model has no GGUF file, and its whole folder is {}",
          name.repo);
    }
    return choose_parts(
        listing,
        name,
        choose_gguf(gguf, name.file, name.text()));
  }
  auto chosen = choose_safetensors(listing);
  if (!chosen.empty()) {
    return chosen;
  }
  if (!gguf.empty()) {
    return choose_parts(listing, name, choose_gguf(gguf, "", name.text()));
  }
  if (!pickles.empty()) {
    fail(
        ErrorKind::unsupported,
        name.text(),
        "has its weights only as {}, a format that can run code and is not "
        "taken; look for the model in safetensors or GGUF",
        pickles.front());
  }
  fail(
      ErrorKind::not_found,
      name.text(),
      "holds no weights: neither safetensors nor GGUF");
}

}  // namespace mlxx::hub
