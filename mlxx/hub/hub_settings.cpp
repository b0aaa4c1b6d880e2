#include "mlxx/hub/hub_settings.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"
#include "mlxx/base/mapped_file.h"

namespace mlxx::hub {

namespace fs = std::filesystem;

namespace {

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
      (c >= '0' && c <= '9') || c == '_';
}

fs::path user_home() {
  if (auto home = environment("HOME")) {
    return *home;
  }
  fail(
      ErrorKind::invalid_request,
      "HF_HOME",
      "no home folder is known, set HF_HOME");
}

// "~" at the start, $NAME and ${NAME}; an unset variable stays as it is.
fs::path expand(const std::string& text) {
  std::string out;
  size_t i = 0;
  if (text == "~" || text.starts_with("~/")) {
    out = user_home().string();
    i = 1;
  }
  while (i < text.size()) {
    bool braced = text.compare(i, 2, "${") == 0;
    size_t begin = i + (braced ? 2 : 1);
    size_t end = begin;
    while (end < text.size() && is_name_character(text[end])) {
      ++end;
    }
    size_t next = end + (braced ? 1 : 0);
    bool is_variable = text[i] == '$' && end > begin &&
        (!braced || (end < text.size() && text[end] == '}'));
    std::optional<std::string> value;
    if (is_variable) {
      value = environment(text.substr(begin, end - begin).c_str());
    }
    if (value) {
      out += *value;
      i = next;
    } else {
      out += text[i++];
    }
  }
  return out;
}

// As huggingface_hub reads them: 1, ON, YES, TRUE in any case.
bool hub_flag(const char* name) {
  auto value = environment(name);
  if (!value) {
    return false;
  }
  std::string upper = *value;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return upper == "1" || upper == "ON" || upper == "YES" || upper == "TRUE";
}

fs::path hugging_face_home() {
  if (auto home = environment("HF_HOME")) {
    return expand(*home);
  }
  if (auto cache = environment("XDG_CACHE_HOME")) {
    return expand(*cache) / "huggingface";
  }
  return user_home() / ".cache" / "huggingface";
}

// A token goes into a header: nothing but visible ASCII may pass.
std::string clean_token(std::string token, const std::string& place) {
  auto is_blank = [](char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
  };
  while (!token.empty() && is_blank(token.back())) {
    token.pop_back();
  }
  while (!token.empty() && is_blank(token.front())) {
    token.erase(0, 1);
  }
  for (char c : token) {
    if (c <= ' ' || c > '~') {
      fail(
          ErrorKind::invalid_request,
          place,
          "is no token: it holds a blank or a character that is not ASCII");
    }
  }
  return token;
}

std::string find_token() {
  if (hub_flag("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
    return {};
  }
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (auto token = environment(name)) {
      return clean_token(*token, name);
    }
  }
  auto named = environment("HF_TOKEN_PATH");
  fs::path file = named ? expand(*named) : hugging_face_home() / "token";
  std::error_code error;
  if (!fs::is_regular_file(file, error)) {
    return {};
  }
  constexpr size_t kMaxToken = 4096;
  return clean_token(read_file(file, kMaxToken), file.string());
}

}  // namespace

fs::path hugging_face_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (auto cache = environment(name)) {
      return expand(*cache);
    }
  }
  return hugging_face_home() / "hub";
}

HubSettings hub_settings() {
  HubSettings settings;
  if (auto endpoint = environment("HF_ENDPOINT")) {
    settings.endpoint = *endpoint;
    while (settings.endpoint.ends_with('/')) {
      settings.endpoint.pop_back();
    }
    if (url_origin(settings.endpoint).empty()) {
      fail(
          ErrorKind::invalid_request,
          "HF_ENDPOINT",
          "must be an http or https URL, is '{}'",
          *endpoint);
    }
  }
  settings.token = find_token();
  settings.cache = hugging_face_cache();
  settings.offline =
      hub_flag("HF_HUB_OFFLINE") || hub_flag("TRANSFORMERS_OFFLINE");
  if (auto text = environment("HF_HUB_DOWNLOAD_TIMEOUT")) {
    int seconds = 0;
    auto [end, error] =
        std::from_chars(text->data(), text->data() + text->size(), seconds);
    if (error != std::errc() || end != text->data() + text->size() ||
        seconds < 1) {
      fail(
          ErrorKind::invalid_request,
          "HF_HUB_DOWNLOAD_TIMEOUT",
          "must be a number of seconds from 1, is '{}'",
          *text);
    }
    settings.timeouts.stall = std::chrono::seconds(seconds);
  }
  return settings;
}

}  // namespace mlxx::hub
