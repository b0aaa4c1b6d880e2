#include "mlxx/core/nvrtc.h"

#include <filesystem>
#include <memory>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>

#include "mlxx/base/environment.h"
#include "mlxx/core/mlx.h"

namespace mlxx {

namespace {

namespace fs = std::filesystem;

constexpr int kSuccess = 0;
constexpr size_t kLogShown = 400;

// The part of NVRTC's C interface that is used here.
struct Program;
struct Nvrtc {
  int (*create)(
      Program**,
      const char* source,
      const char* name,
      int headers,
      const char* const* texts,
      const char* const* names);
  int (*compile)(Program*, int count, const char* const* options);
  int (*log_size)(Program*, size_t*);
  int (*log)(Program*, char*);
  int (*code_size)(Program*, size_t*);
  int (*code)(Program*, char*);
  int (*destroy)(Program**);
};

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

std::optional<Nvrtc> find_nvrtc() {
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"}) {
    void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) {
      continue;
    }
    Nvrtc found{};
    if (find(library, "nvrtcCreateProgram", found.create) &&
        find(library, "nvrtcCompileProgram", found.compile) &&
        find(library, "nvrtcGetProgramLogSize", found.log_size) &&
        find(library, "nvrtcGetProgramLog", found.log) &&
        find(library, "nvrtcGetCUBINSize", found.code_size) &&
        find(library, "nvrtcGetCUBIN", found.code) &&
        find(library, "nvrtcDestroyProgram", found.destroy)) {
      return found;
    }
  }
  return std::nullopt;
}

// Where MLX looks: Python packages beside it, then an installed toolkit.
fs::path folder_of_headers() {
  std::vector<fs::path> folders;
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&mx::version), &info) && info.dli_fname) {
    fs::path packages = fs::path(info.dli_fname).parent_path() / ".." / "..";
    folders.push_back(packages / "nvidia" / "cu13" / "include");
    folders.push_back(packages / "nvidia" / "cuda_runtime" / "include");
  }
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (auto home = environment(name)) {
      folders.push_back(fs::path(*home) / "include");
    }
  }
  folders.emplace_back("/usr/local/cuda/include");
  std::error_code error;
  for (const fs::path& folder : folders) {
    if (fs::exists(folder / "cuda_bf16.h", error)) {
      return folder;
    }
  }
  return {};
}

std::optional<std::string> none(std::string* why_not, std::string reason) {
  if (why_not) {
    *why_not = std::move(reason);
  }
  return std::nullopt;
}

// MLX's choice too: what only this kind of GPU has, from Hopper on.
std::string target_of(const std::string& architecture) {
  bool has_own = architecture >= "sm_90" || architecture.size() > 5;
  return architecture + (has_own ? "a" : "");
}

}  // namespace

std::optional<std::string> compile_with_nvrtc(
    const std::string& source,
    const std::string& architecture,
    std::string* why_not) {
  auto nvrtc = find_nvrtc();
  if (!nvrtc) {
    return none(why_not, "NVRTC is not loaded");
  }
  fs::path headers = folder_of_headers();
  if (headers.empty()) {
    return none(why_not, "CUDA's headers were not found");
  }
  Program* made = nullptr;
  if (nvrtc->create(&made, source.c_str(), "kernel.cu", 0, nullptr, nullptr)) {
    return none(why_not, "NVRTC made no program");
  }
  auto destroy = [&](Program* program) { nvrtc->destroy(&program); };
  std::unique_ptr<Program, decltype(destroy)> program(made, destroy);
  std::string target = "--gpu-architecture=" + target_of(architecture);
  std::string include = "--include-path=" + headers.string();
  const char* options[] = {
      target.c_str(),
      include.c_str(),
      "--std=c++17",
      "--device-as-default-execution-space"};
  int result = nvrtc->compile(program.get(), std::size(options), options);
  if (result != kSuccess) {
    size_t size = 0;
    nvrtc->log_size(program.get(), &size);
    std::string log(size, '\0');
    nvrtc->log(program.get(), log.data());
    return none(
        why_not,
        fmt::format(
            "NVRTC gave {}: {}",
            result,
            std::string_view(log).substr(0, kLogShown)));
  }
  size_t size = 0;
  if (nvrtc->code_size(program.get(), &size) != kSuccess || size == 0) {
    return none(why_not, "NVRTC made no machine code");
  }
  std::string code(size, '\0');
  if (nvrtc->code(program.get(), code.data()) != kSuccess) {
    return none(why_not, "NVRTC gave no machine code");
  }
  return code;
}

}  // namespace mlxx
