#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace mlxx {

// Something that can record what a GPU does into a file; a fake in tests.
class TraceDevice {
 public:
  TraceDevice() = default;
  virtual ~TraceDevice() = default;
  TraceDevice(const TraceDevice&) = delete;
  TraceDevice& operator=(const TraceDevice&) = delete;

  // Why it cannot record, as a sentence's end; nothing if it can.
  virtual std::optional<std::string> obstacle() const = 0;
  virtual void start(const std::filesystem::path& path) = 0;
  virtual void stop() = 0;
  // Waits until the GPU has done what it was given.
  virtual void synchronize() = 0;
};

// Runs `function` while `device` records to `path`, which gets the work that
// the function gave the GPU and no other: both before and after, the GPU is
// waited for. Recording is stopped however the function ends, and what it
// throws comes out.
//
// Before the function runs: unsupported if the device cannot record;
// invalid_request if there is no function, or if `path` does not end in
// ".gputrace", exists, or lies in no folder; internal if the recording does not
// start, as when another one is under way. A relative path is taken from the
// current folder. internal if stopping fails after the function succeeded.
void capture(
    TraceDevice& device,
    const std::filesystem::path& path,
    const std::function<void()>& function);

// As capture(), by MLX's Metal device, for Xcode's debugger. unsupported
// without Metal, and without MTL_CAPTURE_ENABLED=1 in the environment from the
// start of the process, which Metal wants.
void metal_capture(
    const std::filesystem::path& path,
    const std::function<void()>& function);

}  // namespace mlxx
