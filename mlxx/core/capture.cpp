#include "mlxx/core/capture.h"

#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"
#include "mlxx/core/mlx.h"

namespace mlxx {
namespace {

constexpr std::string_view kPlace = "capture";
constexpr std::string_view kExtension = ".gputrace";

class MetalTraceDevice : public TraceDevice {
 public:
  std::optional<std::string> obstacle() const override {
    if (!mx::metal::is_available()) {
      return "this MLX has no Metal";
    }
    if (environment("MTL_CAPTURE_ENABLED") != "1") {
      return "MTL_CAPTURE_ENABLED must be 1 when the process starts";
    }
    return std::nullopt;
  }
  void start(const std::filesystem::path& path) override {
    mx::metal::start_capture(path.string());
  }
  void stop() override {
    mx::metal::stop_capture();
  }
  void synchronize() override {
    mx::synchronize(mx::default_stream(mx::Device::gpu));
  }
};

// The absolute path to record to.
std::filesystem::path checked_path(const std::filesystem::path& path) {
  if (path.native().find('\0') != std::string::npos) {
    fail(ErrorKind::invalid_request, kPlace, "the path has a null byte in it");
  }
  std::error_code error;
  std::filesystem::path whole = std::filesystem::absolute(path, error);
  if (error || path.extension() != kExtension) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "a trace's name must end in {}, found '{}'",
        kExtension,
        path.string());
  }
  if (!std::filesystem::is_directory(whole.parent_path(), error)) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "there is no folder '{}' for the trace",
        whole.parent_path().string());
  }
  // A dangling link would be followed to wherever it points.
  auto status = std::filesystem::symlink_status(whole, error);
  if (std::filesystem::exists(status)) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "'{}' exists already",
        whole.string());
  }
  return whole;
}

template <typename Step>
void run_step(std::string_view what, const Step& step) {
  try {
    step();
  } catch (const std::exception& error) {
    fail(ErrorKind::internal, kPlace, "{} failed: {}", what, error.what());
  }
}

}  // namespace

void capture(
    TraceDevice& device,
    const std::filesystem::path& path,
    const std::function<void()>& function) {
  if (auto obstacle = device.obstacle()) {
    fail(ErrorKind::unsupported, kPlace, "cannot record: {}", *obstacle);
  }
  if (!function) {
    fail(ErrorKind::invalid_request, kPlace, "there is nothing to run");
  }
  auto whole = checked_path(path);
  run_step("waiting for the GPU", [&] { device.synchronize(); });
  run_step("starting", [&] { device.start(whole); });
  std::exception_ptr thrown;
  try {
    function();
    run_step("waiting for the GPU", [&] { device.synchronize(); });
  } catch (...) {
    thrown = std::current_exception();
  }
  try {
    run_step("stopping", [&] { device.stop(); });
  } catch (...) {
    if (!thrown) {
      throw;
    }
  }
  if (thrown) {
    std::rethrow_exception(thrown);
  }
}

void metal_capture(
    const std::filesystem::path& path,
    const std::function<void()>& function) {
  MetalTraceDevice device;
  capture(device, path, function);
}

}  // namespace mlxx
