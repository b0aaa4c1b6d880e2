#include "mlxx/adapters/fuse.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <system_error>

#include "mlxx/adapters/fused_checkpoint.h"
#include "mlxx/adapters/weight_changes.h"
#include "mlxx/base/error.h"
#include "mlxx/base/paths.h"
#include "mlxx/hub/export_mlx.h"

namespace mlxx::adapters {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPlace = "fuse";

void check_options(const FuseOptions& options) {
  constexpr int kBits[] = {2, 3, 4, 5, 6, 8};
  if (options.bits &&
      std::ranges::find(kBits, *options.bits) == std::end(kBits)) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "weights can't have {} bits; 2 to 6 and 8 are possible",
        *options.bits);
  }
  if (options.bits && options.dequantize) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "dense weights have no {} bits: dequantize, or say how many",
        *options.bits);
  }
  if (!(options.max_error >= 0)) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "the bound of the error is {}, it must be 0 or more",
        options.max_error);
  }
}

void check_target(const fs::path& out) {
  std::error_code ignored;
  if (out.empty() || out.filename().empty()) {
    fail(ErrorKind::invalid_request, kPlace, "no folder to write is named");
  }
  if (fs::exists(out, ignored) &&
      !(fs::is_directory(out, ignored) && fs::is_empty(out, ignored))) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "'{}' is there already",
        out.string());
  }
}

// A folder beside the target that takes its name at the end, or goes away.
class StagedFolder {
 public:
  explicit StagedFolder(const fs::path& target) : target_(target) {
    fs::path parent = target.parent_path();
    if (!parent.empty()) {
      make_folder(parent);
    }
    std::string name = target.string() + ".XXXXXX";
    if (!mkdtemp(name.data())) {
      fail(
          ErrorKind::internal,
          kPlace,
          "'{}' can't be made: {}",
          name,
          std::generic_category().message(errno));
    }
    path_ = name;
  }
  ~StagedFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  const fs::path& path() const {
    return path_;
  }
  void commit() {
    std::error_code error;
    fs::permissions(path_, fs::perms(0755), error);
    fs::rename(path_, target_, error);
    if (error) {
      fail(
          ErrorKind::internal,
          kPlace,
          "'{}' can't be written: {}",
          target_.string(),
          error.message());
    }
  }

 private:
  fs::path target_;
  fs::path path_;
};

// What the tokenizer and chats need, as the model has it.
void copy_side_files(const fs::path& from, const fs::path& to) {
  if (!fs::is_directory(from)) {
    return;
  }
  auto ends = [](const std::string& name, std::string_view end) {
    return name.ends_with(end);
  };
  for (const auto& entry : fs::directory_iterator(from)) {
    std::string name = entry.path().filename().string();
    bool weights = ends(name, ".index.json") || name == "config.json";
    bool wanted = ends(name, ".json") || ends(name, ".jinja") ||
        ends(name, ".txt") || ends(name, ".model") || ends(name, ".tiktoken");
    if (!wanted || weights || !entry.is_regular_file()) {
      continue;
    }
    std::error_code error;
    fs::copy_file(
        entry.path(),
        to / name,
        fs::copy_options::overwrite_existing,
        error);
    if (error) {
      fail(
          ErrorKind::internal,
          kPlace,
          "'{}' can't be copied: {}",
          entry.path().string(),
          error.message());
    }
  }
}

void check_report(const FuseReport& report, const FuseOptions& options) {
  // Rounding to a dense dtype is reported, but there is nothing to do instead.
  bool quantized = std::ranges::any_of(report.weights, [](const auto& one) {
    return one.bits > 0;
  });
  if (!quantized || options.force || report.error <= options.max_error) {
    return;
  }
  fail(
      ErrorKind::invalid_request,
      kPlace,
      "quantizing again loses the adapter: {:.0f} % of its change survives, "
      "with an error of {:.2f} times the change (at most {}); --dequantize "
      "keeps it, --bits 8 loses less, --force writes this",
      100 * report.survives,
      report.error,
      options.max_error);
}

}  // namespace

FuseReport fuse_adapter(
    std::shared_ptr<const hub::Checkpoint> checkpoint,
    const std::filesystem::path& adapter,
    const std::filesystem::path& out,
    const FuseOptions& options) {
  check_options(options);
  fs::path target = out.lexically_normal();
  if (target.filename().empty()) {
    target = target.parent_path();
  }
  check_target(target);
  fs::path source = checkpoint->path();
  WeightChanges changes(*checkpoint, adapter);
  FusedCheckpoint fused(std::move(checkpoint), std::move(changes), options);
  hub::LoadDtype dtype;
  FuseReport report = fused.measure(dtype);
  check_report(report, options);
  StagedFolder staged(target);
  hub::write_mlx_checkpoint(fused, staged.path(), dtype);
  copy_side_files(source, staged.path());
  staged.commit();
  return report;
}

}  // namespace mlxx::adapters
