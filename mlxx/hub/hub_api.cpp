#include "mlxx/hub/hub_api.h"

#include <algorithm>
#include <charconv>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/hub/hf_cache.h"
#include "mlxx/hub/retry.h"

namespace mlxx::hub {

namespace {

constexpr size_t kMaxAnswer = size_t{64} << 20;
constexpr size_t kMaxFiles = 100000;
constexpr int64_t kMaxFileSize = int64_t{1} << 50;
constexpr size_t kMaxServerText = 200;

// W/"HASH" or "HASH" -> HASH.
std::string strip_etag(std::string etag) {
  if (etag.starts_with("W/")) {
    etag.erase(0, 2);
  }
  std::erase(etag, '"');
  return etag;
}

std::optional<uint64_t> parse_size(const std::string& text) {
  uint64_t size = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), size);
  bool whole = !text.empty() && end == text.data() + text.size();
  return whole && error == std::errc() ? std::optional(size) : std::nullopt;
}

RepoFile read_file_entry(const JsonView& entry) {
  RepoFile file;
  file.name = entry.string("rfilename");
  if (!is_safe_file_name(file.name)) {
    entry.fail_at(
        "rfilename",
        fmt::format(
            "is no name of a file inside a model's folder, is '{}'",
            file.name.substr(0, kMaxServerText)));
  }
  // The Git blob of an LFS file is a pointer: its own size and hash count.
  if (entry.has("lfs")) {
    JsonView lfs = entry.object("lfs");
    file.size = static_cast<uint64_t>(lfs.integer("size", 0, kMaxFileSize));
    file.hash = parse_content_hash(lfs.string("sha256"), file.name);
  } else {
    if (entry.has("size")) {
      file.size = static_cast<uint64_t>(entry.integer("size", 0, kMaxFileSize));
    }
    if (entry.has("blobId")) {
      file.hash = parse_content_hash(entry.string("blobId"), file.name);
    }
  }
  return file;
}

RepoListing read_listing(const std::string& body, const std::string& place) {
  Json json = parse_json(body, place, {.max_bytes = kMaxAnswer});
  if (!json.is_object()) {
    fail(ErrorKind::bad_file, place, "is no description of a repository");
  }
  JsonView view(json, place);
  RepoListing listing;
  listing.commit = view.string("sha");
  if (!is_commit(listing.commit)) {
    view.fail_at("sha", "is no commit");
  }
  auto siblings = json.find("siblings");
  if (siblings == json.end() || !siblings->is_array()) {
    view.fail_at("siblings", "is no list of files");
  }
  if (siblings->size() > kMaxFiles) {
    view.fail_at("siblings", "lists too many files");
  }
  for (const Json& entry : *siblings) {
    if (!entry.is_object()) {
      view.fail_at("siblings", "holds what is no file");
    }
    listing.files.push_back(read_file_entry(JsonView(entry, place)));
  }
  std::sort(
      listing.files.begin(),
      listing.files.end(),
      [](const auto& a, const auto& b) { return a.name < b.name; });
  auto twice = std::adjacent_find(
      listing.files.begin(),
      listing.files.end(),
      [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twice != listing.files.end()) {
    view.fail_at("siblings", fmt::format("lists '{}' twice", twice->name));
  }
  return listing;
}

}  // namespace

HubApi::HubApi(
    HttpClient& client,
    const HubSettings& settings,
    std::function<void()> on_tick)
    : client_(&client), settings_(&settings), on_tick_(std::move(on_tick)) {}

HttpHead HubApi::ask(
    const RepoName& name,
    const HttpRequest& request,
    std::string& body) {
  Retry retry(*settings_, on_tick_);
  while (true) {
    body.clear();
    HttpHandlers handlers;
    handlers.on_tick = on_tick_;
    handlers.on_body = [&](std::span<const std::byte> bytes) {
      if (body.size() + bytes.size() > kMaxAnswer) {
        fail(
            ErrorKind::bad_file,
            request.url,
            "answers with more than {} bytes",
            kMaxAnswer);
      }
      body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    HttpResult result = client_->send(request, handlers);
    int status = result.head.status;
    if (result.end == HttpEnd::whole && !is_temporary(status)) {
      if (status < 200 || status > 399) {
        fail_with_status(result.head, name, *settings_);
      }
      return result.head;
    }
    retry.wait_or_fail(result, request.url, false);
  }
}

RepoListing HubApi::list(const RepoName& name) {
  HttpRequest request{
      .url = fmt::format(
          "{}/api/models/{}/revision/{}?blobs=true",
          settings_->endpoint,
          name.repo,
          url_encode(name.revision_or_main(), false)),
      .bearer_token = settings_->token};
  std::string body;
  ask(name, request, body);
  return read_listing(body, request.url);
}

RepoFile HubApi::describe(
    const RepoName& name,
    const std::string& commit,
    const std::string& file) {
  HttpRequest request{
      .url = file_url(name, commit, file),
      .head_only = true,
      .bearer_token = settings_->token,
      // The storage behind the hub does not know these headers.
      .leave_origin = false};
  std::string body;
  HttpHead head = ask(name, request, body);
  std::string etag = head.header("x-linked-etag");
  std::string size = head.header("x-linked-size");
  bool moved = head.status >= 300;
  if (etag.empty() && !moved) {
    etag = head.header("etag");
  }
  if (size.empty() && !moved) {
    size = head.header("content-length");
  }
  RepoFile described{.name = file, .size = parse_size(size), .hash = {}};
  described.hash = parse_content_hash(strip_etag(etag), request.url);
  if (!described.size) {
    fail(ErrorKind::bad_file, request.url, "the server gives no size");
  }
  return described;
}

std::string HubApi::file_url(
    const RepoName& name,
    const std::string& commit,
    const std::string& file) const {
  return fmt::format(
      "{}/{}/resolve/{}/{}",
      settings_->endpoint,
      name.repo,
      commit,
      url_encode(file, true));
}

void fail_with_status(
    const HttpHead& head,
    const RepoName& name,
    const HubSettings& settings) {
  std::string code = head.header("x-error-code");
  std::string said = head.header("x-error-message").substr(0, kMaxServerText);
  std::string place = name.text();
  if (head.status == 403 || code == "GatedRepo") {
    fail(
        ErrorKind::invalid_request,
        place,
        "its owners grant access on request: ask for it at {}/{}, then set "
        "HF_TOKEN to a token of yours ({})",
        settings.endpoint,
        name.repo,
        said.empty() ? fmt::format("status {}", head.status) : said);
  }
  if (head.status == 401) {
    // The hub does not tell strangers which private repositories exist.
    fail(
        ErrorKind::not_found,
        place,
        "{}",
        settings.token.empty()
            ? "there is no such model, or it is private: check the name, or "
              "set HF_TOKEN to a token that may read it"
            : "there is no such model, or the token in HF_TOKEN is wrong or "
              "may not read it");
  }
  if (head.status == 404 && code == "RevisionNotFound") {
    fail(
        ErrorKind::not_found,
        place,
        "the model has no revision '{}'",
        name.revision_or_main());
  }
  if (head.status == 404) {
    fail(
        ErrorKind::not_found,
        place,
        "{} has no such model{}{}",
        settings.endpoint,
        said.empty() ? "" : ": ",
        said);
  }
  fail(
      ErrorKind::internal,
      head.url,
      "the server answers with status {}{}{}",
      head.status,
      said.empty() ? "" : ": ",
      said);
}

}  // namespace mlxx::hub
