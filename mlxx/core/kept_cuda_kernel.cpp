#include "mlxx/core/kept_cuda_kernel.h"

#include <map>
#include <mutex>

#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/base/paths.h"
#include "mlxx/base/sha256.h"
#include "mlxx/core/nvrtc.h"

namespace mlxx {

namespace {

namespace fs = std::filesystem;

// A digest of the code stands before it: a file that was cut off is not used.
constexpr size_t kDigest = 64;

constexpr const char* kProlog = R"(#include <cuda_bf16.h>
#include <cuda_fp16.h>
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
)";

std::string_view cuda_type(mx::Dtype dtype) {
  switch (dtype.val()) {
    case mx::Dtype::Val::bool_:
      return "bool";
    case mx::Dtype::Val::uint8:
      return "uint8_t";
    case mx::Dtype::Val::uint16:
      return "uint16_t";
    case mx::Dtype::Val::uint32:
      return "uint32_t";
    case mx::Dtype::Val::uint64:
      return "uint64_t";
    case mx::Dtype::Val::int8:
      return "int8_t";
    case mx::Dtype::Val::int16:
      return "int16_t";
    case mx::Dtype::Val::int32:
      return "int32_t";
    case mx::Dtype::Val::int64:
      return "int64_t";
    case mx::Dtype::Val::float16:
      return "__half";
    case mx::Dtype::Val::bfloat16:
      return "__nv_bfloat16";
    case mx::Dtype::Val::float32:
      return "float";
    case mx::Dtype::Val::float64:
      return "double";
    default:
      return "";
  }
}

std::string constant_of(const std::string& name, const TemplateValue& value) {
  if (const int* number = std::get_if<int>(&value)) {
    return fmt::format("  constexpr int {} = {};\n", name, *number);
  }
  if (const bool* flag = std::get_if<bool>(&value)) {
    return fmt::format("  constexpr bool {} = {};\n", name, *flag);
  }
  return fmt::format(
      "  using {} = {};\n",
      name,
      cuda_type(std::get<mx::Dtype>(value)));
}

// Empty where nothing is kept.
fs::path file_of(const CudaKernelText& text, const std::string& architecture) {
  auto folder = environment("MLX_PTX_CACHE_DIR");
  if (!folder || folder->empty()) {
    return {};
  }
  std::string digest =
      sha256_hex(std::as_bytes(std::span<const char>(text.source)));
  return fs::path(*folder) / "mlxx" /
      fmt::format("{}-{}.cubin", digest, architecture);
}

std::optional<std::string> read_kept(const fs::path& path) {
  std::error_code error;
  if (path.empty() || !fs::exists(path, error)) {
    return std::nullopt;
  }
  try {
    std::string content = read_file(path);
    std::string code =
        content.size() > kDigest ? content.substr(kDigest) : std::string();
    if (!code.empty() &&
        content.substr(0, kDigest) ==
            sha256_hex(std::as_bytes(std::span<const char>(code)))) {
      return code;
    }
  } catch (const Error& failure) {
    log_debug("{}", failure.what());
  }
  return std::nullopt;
}

void keep(const fs::path& path, const std::string& code) {
  if (path.empty()) {
    return;
  }
  try {
    make_folder(path.parent_path());
    write_file_atomically(
        path,
        sha256_hex(std::as_bytes(std::span<const char>(code))) + code);
  } catch (const Error& failure) {
    log_debug("{}; compiled code is not kept", failure.what());
  }
}

std::string architecture_of_device() {
  const auto& info = mx::device_info(mx::default_device());
  auto found = info.find("architecture");
  const auto* name =
      found == info.end() ? nullptr : std::get_if<std::string>(&found->second);
  return name ? *name : std::string();
}

// The machine code of one kernel, made at its first call.
class KeptKernel {
 public:
  KeptKernel(std::string name, std::string body, CustomKernelSpec spec)
      : name_(std::move(name)),
        body_(std::move(body)),
        spec_(std::move(spec)) {}

  std::vector<mx::array> launch(
      const std::vector<mx::array>& inputs,
      const std::vector<mx::Shape>& output_shapes,
      const std::vector<mx::Dtype>& output_dtypes,
      std::tuple<int, int, int> grid,
      std::tuple<int, int, int> threadgroup,
      const TemplateValues& values,
      std::optional<float> init_value,
      bool verbose,
      mx::StreamOrDevice stream) {
    {
      std::scoped_lock lock(mutex_);
      if (!made_) {
        make(inputs, output_dtypes, values);
        made_ = true;
      }
    }
    if (by_mlx_) {
      return by_mlx_(
          inputs,
          output_shapes,
          output_dtypes,
          grid,
          threadgroup,
          values,
          init_value,
          verbose,
          stream);
    }
    std::vector<mx::fast::ScalarArg> numbers;
    for (int input : text_.shape_inputs) {
      for (int size : inputs[input].shape()) {
        numbers.emplace_back(size);
      }
    }
    return mx::fast::precompiled_cuda_kernel(
        text_.name,
        code_,
        inputs,
        output_shapes,
        output_dtypes,
        numbers,
        grid,
        threadgroup,
        spec_.cuda->shared_memory,
        init_value,
        spec_.ensure_row_contiguous,
        stream);
  }

 private:
  void make(
      const std::vector<mx::array>& inputs,
      const std::vector<mx::Dtype>& output_dtypes,
      const TemplateValues& values) {
    std::string why = "it asks for strides or other types";
    auto text =
        write_cuda_kernel(name_, body_, spec_, inputs, output_dtypes, values);
    std::string architecture = architecture_of_device();
    if (text && !architecture.empty()) {
      fs::path file = file_of(*text, architecture);
      auto code = read_kept(file);
      if (!code) {
        code = compile_with_nvrtc(text->source, architecture, &why);
        if (code) {
          keep(file, *code);
        }
      }
      if (code) {
        text_ = std::move(*text);
        code_ = std::move(*code);
        return;
      }
    }
    log_debug("{} is compiled by MLX in every process: {}", name_, why);
    by_mlx_ = mx::fast::cuda_kernel(
        name_,
        spec_.input_names,
        spec_.output_names,
        body_,
        spec_.cuda->header,
        spec_.ensure_row_contiguous,
        spec_.cuda->shared_memory);
  }

  std::string name_;
  std::string body_;
  CustomKernelSpec spec_;
  std::mutex mutex_;
  bool made_ = false;
  CudaKernelText text_;
  std::string code_;
  mx::fast::CustomKernelFunction by_mlx_;
};

}  // namespace

std::optional<CudaKernelText> write_cuda_kernel(
    const std::string& name,
    const std::string& body,
    const CustomKernelSpec& spec,
    const std::vector<mx::array>& inputs,
    const std::vector<mx::Dtype>& output_dtypes,
    const TemplateValues& values) {
  CudaKernelText text{.name = name, .source = {}, .shape_inputs = {}};
  std::string parameters;
  std::string numbers;
  std::string constants;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string& input = spec.input_names[i];
    std::string_view type = cuda_type(inputs[i].dtype());
    if (type.empty() || body.find(input + "_strides") != std::string::npos) {
      return std::nullopt;
    }
    parameters += fmt::format("    const {}* {},\n", type, input);
    if (inputs[i].ndim() > 0) {
      constants += fmt::format(
          "  constexpr int {}_ndim = {};\n",
          input,
          inputs[i].ndim());
    }
    if (inputs[i].ndim() == 0 ||
        body.find(input + "_shape") == std::string::npos) {
      continue;
    }
    text.shape_inputs.push_back(static_cast<int>(i));
    std::string all;
    for (size_t axis = 0; axis < inputs[i].ndim(); ++axis) {
      std::string one = fmt::format("{}_shape_{}", input, axis);
      numbers += fmt::format(",\n    int {}", one);
      all += (axis > 0 ? ", " : "") + one;
    }
    constants += fmt::format("  const int {}_shape[] = {{{}}};\n", input, all);
  }
  for (size_t i = 0; i < output_dtypes.size(); ++i) {
    std::string_view type = cuda_type(output_dtypes[i]);
    if (type.empty()) {
      return std::nullopt;
    }
    parameters += fmt::format("    {}* {},\n", type, spec.output_names[i]);
  }
  parameters.resize(parameters.size() - 2);  // the last comma
  for (const auto& [constant, value] : values) {
    if (const auto* dtype = std::get_if<mx::Dtype>(&value);
        dtype && cuda_type(*dtype).empty()) {
      return std::nullopt;
    }
    constants += constant_of(constant, value);
  }
  text.source = fmt::format(
      "{}{}\nextern \"C\" __global__ void {}(\n{}{}) {{\n{}{}\n}}\n",
      kProlog,
      spec.cuda->header,
      name,
      parameters,
      numbers,
      constants,
      body);
  return text;
}

mx::fast::CustomKernelFunction make_kept_cuda_kernel(
    const std::string& name,
    const std::string& body,
    const CustomKernelSpec& spec) {
  auto kernel = std::make_shared<KeptKernel>(name, body, spec);
  return [kernel](
             const std::vector<mx::array>& inputs,
             const std::vector<mx::Shape>& output_shapes,
             const std::vector<mx::Dtype>& output_dtypes,
             std::tuple<int, int, int> grid,
             std::tuple<int, int, int> threadgroup,
             const TemplateValues& values,
             std::optional<float> init_value,
             bool verbose,
             mx::StreamOrDevice stream) {
    return kernel->launch(
        inputs,
        output_shapes,
        output_dtypes,
        grid,
        threadgroup,
        values,
        init_value,
        verbose,
        stream);
  };
}

}  // namespace mlxx
