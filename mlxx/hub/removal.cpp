#include "mlxx/hub/removal.h"

#include <algorithm>
#include <optional>
#include <set>
#include <system_error>

#include "mlxx/base/closest_match.h"
#include "mlxx/base/error.h"
#include "mlxx/base/paths.h"
#include "mlxx/hub/cached_models.h"
#include "mlxx/hub/catalogue.h"
#include "mlxx/hub/hf_cache.h"
#include "mlxx/hub/hub_settings.h"
#include "mlxx/hub/lock_file.h"
#include "mlxx/hub/model_name.h"

namespace mlxx::hub {

namespace fs = std::filesystem;

namespace {

// Of one file that is no link; a link frees nothing that counts.
uint64_t bytes_of(const fs::path& path) {
  std::error_code error;
  if (fs::symlink_status(path, error).type() != fs::file_type::regular) {
    return 0;
  }
  uint64_t size = fs::file_size(path, error);
  return error ? 0 : size;
}

uint64_t bytes_below(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end;
       !error && at != end;
       at.increment(error)) {
    bytes += bytes_of(at->path());
  }
  return bytes;
}

// The blobs that a snapshot's links lead to: the first hop only, as a blob may
// itself be a link to a store that repositories share.
std::set<fs::path> blobs_of(const RepoCache& repo, const std::string& commit) {
  std::set<fs::path> blobs;
  fs::path blob_folder = (repo.folder() / "blobs").lexically_normal();
  std::error_code error;
  for (fs::recursive_directory_iterator at(repo.snapshot(commit), error), end;
       !error && at != end;
       at.increment(error)) {
    std::error_code ignored;
    fs::path target = fs::read_symlink(at->path(), ignored);
    if (ignored) {
      continue;
    }
    fs::path blob = (at->path().parent_path() / target).lexically_normal();
    if (blob.parent_path() == blob_folder) {
      blobs.insert(blob);
    }
  }
  return blobs;
}

void refuse_link(const fs::path& folder) {
  std::error_code error;
  if (fs::is_symlink(folder, error)) {
    fail(
        ErrorKind::invalid_request,
        folder.string(),
        "is a link to another place; what is there is not mlxx's to delete");
  }
}

RemovalPlan plan_catalogue(const CatalogueEntry& entry) {
  fs::path folder = catalogue_path(entry).parent_path();
  if (catalogue_state(entry) == CatalogueState::absent) {
    fail(ErrorKind::not_found, entry.name, "is not on this machine");
  }
  refuse_link(folder);
  return {
      .model = entry.name,
      .root = mlxx_home() / "models",
      .paths = {folder},
      .bytes = bytes_below(folder)};
}

RemovalPlan plan_revision(
    const RepoName& name,
    const RepoCache& repo,
    const fs::path& cache) {
  auto commit = repo.find_commit(name.revision);
  auto commits = repo.commits();
  bool is_here = commit &&
      std::find(commits.begin(), commits.end(), *commit) != commits.end();
  if (!is_here) {
    fail(
        ErrorKind::not_found,
        name.text(),
        "this revision is not on this machine; `mlxx list` shows which are");
  }
  RemovalPlan plan{.model = name.text(), .root = cache, .paths = {}};
  if (commits.size() == 1) {
    plan.paths = {repo.folder()};
    plan.bytes = bytes_below(repo.folder());
    return plan;
  }
  std::set<fs::path> kept;
  for (const std::string& other : commits) {
    if (other != *commit) {
      kept.merge(blobs_of(repo, other));
    }
  }
  plan.paths.push_back(repo.snapshot(*commit));
  plan.bytes = bytes_below(repo.snapshot(*commit));
  for (const std::string& ref : repo.refs_of(*commit)) {
    plan.paths.push_back(repo.folder() / "refs" / ref);
  }
  for (const fs::path& blob : blobs_of(repo, *commit)) {
    if (!kept.contains(blob)) {
      plan.paths.push_back(blob);
      plan.bytes += bytes_of(blob);
    }
  }
  return plan;
}

RemovalPlan plan_repo(const RepoName& name) {
  if (!name.file.empty()) {
    fail(
        ErrorKind::invalid_request,
        name.text(),
        "single files are not deleted, only revisions (org/repo@rev) and whole "
        "models (org/repo)");
  }
  fs::path cache = hugging_face_cache();
  RepoCache repo(cache, name.repo);
  std::error_code error;
  if (!fs::is_directory(repo.folder(), error)) {
    auto near = closest_match(name.repo, known_model_names());
    fail(
        ErrorKind::not_found,
        name.text(),
        "is not in {}{}",
        cache.string(),
        near ? fmt::format("; did you mean '{}'?", *near) : "");
  }
  refuse_link(repo.folder());
  if (!name.revision.empty()) {
    return plan_revision(name, repo, cache);
  }
  return {
      .model = name.text(),
      .root = cache,
      .paths = {repo.folder()},
      .bytes = bytes_below(repo.folder())};
}

[[noreturn]] void fail_busy(const std::string& model, const fs::path& lock) {
  fail(
      ErrorKind::invalid_request,
      model,
      "is being downloaded by {}",
      lock_owner(lock));
}

// The locks that a download of the model would take; held during removal.
std::vector<LockFile> take_locks(const RemovalPlan& plan) {
  std::vector<fs::path> paths;
  if (find_in_catalogue(plan.model)) {
    paths.push_back(
        make_folder(mlxx_home() / "locks") / (plan.model + ".lock"));
  } else if (auto name = parse_repo_name(plan.model)) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(
             RepoCache(plan.root, name->repo).lock_folder(),
             error)) {
      if (entry.path().extension() == ".lock") {
        paths.push_back(entry.path());
      }
    }
  }
  std::vector<LockFile> locks;
  for (const fs::path& path : paths) {
    auto lock = LockFile::try_lock(path);
    if (!lock) {
      fail_busy(plan.model, path);
    }
    locks.push_back(std::move(*lock));
  }
  return locks;
}

bool is_below(const fs::path& path, const fs::path& root) {
  fs::path relative =
      path.lexically_normal().lexically_relative(root.lexically_normal());
  return !relative.empty() && *relative.begin() != ".." &&
      *relative.begin() != ".";
}

}  // namespace

RemovalPlan plan_removal(const std::string& model) {
  if (const CatalogueEntry* entry = find_in_catalogue(model)) {
    return plan_catalogue(*entry);
  }
  auto name = parse_repo_name(model);
  std::error_code error;
  if (name &&
      fs::is_directory(
          RepoCache(hugging_face_cache(), name->repo).folder(),
          error)) {
    return plan_repo(*name);
  }
  if (fs::exists(model, error)) {
    fail(
        ErrorKind::invalid_request,
        model,
        "is a path of yours; mlxx deletes only models that were pulled");
  }
  if (name) {
    return plan_repo(*name);
  }
  auto near = closest_match(model, known_model_names());
  fail(
      ErrorKind::not_found,
      model,
      "is no model on this machine{}",
      near ? fmt::format("; did you mean '{}'?", *near)
           : "; `mlxx list` shows which are");
}

void execute_removal(const RemovalPlan& plan) {
  auto locks = take_locks(plan);
  for (const fs::path& path : plan.paths) {
    if (!is_below(path, plan.root)) {
      fail(
          ErrorKind::internal,
          path.string(),
          "is not below {} and is not deleted",
          plan.root.string());
    }
    std::error_code error;
    fs::remove_all(path, error);
    if (error) {
      fail(
          ErrorKind::internal,
          path.string(),
          "cannot be deleted, {}",
          error.message());
    }
  }
}

}  // namespace mlxx::hub
