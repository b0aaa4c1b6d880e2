#include "mlxx/core/custom_kernel_checks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "mlxx/base/error.h"
#include "mlxx/core/dtype.h"

namespace mlxx {
namespace {

// Limits of both Metal's and CUDA's devices, and of CUDA alone.
constexpr int64_t kMostThreadsPerGroup = 1024;
constexpr int kMostCudaGroupZ = 64;
constexpr int kMostCudaGroupsYZ = 65535;

// What MLX may add to an input's name in a source.
constexpr std::array<std::string_view, 3> kSuffixes{
    "_shape",
    "_strides",
    "_ndim"};

// Words that C++, Metal or CUDA would not take as a variable's name and that
// somebody might choose as one.
constexpr auto kReserved = std::to_array<std::string_view>(
    {"auto",    "bool",      "break",     "case",      "char",
     "class",   "const",     "constant",  "constexpr", "continue",
     "default", "delete",    "device",    "do",        "double",
     "else",    "enum",      "explicit",  "export",    "extern",
     "false",   "float",     "for",       "friend",    "goto",
     "half",    "if",        "inline",    "int",       "kernel",
     "long",    "mutable",   "namespace", "new",       "operator",
     "private", "protected", "public",    "register",  "return",
     "short",   "signed",    "sizeof",    "static",    "struct",
     "switch",  "template",  "this",      "thread",    "threadgroup",
     "throw",   "true",      "try",       "typedef",   "typename",
     "uint",    "union",     "unsigned",  "using",     "virtual",
     "void",    "volatile",  "while"});

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

void check_name(
    std::string_view name,
    std::string_view what,
    std::string_view place) {
  bool is_identifier = !name.empty() && is_letter(name[0]) &&
      std::ranges::all_of(name, [](char c) {
        return is_letter(c) || (c >= '0' && c <= '9');
      });
  if (!is_identifier || std::ranges::find(kReserved, name) != kReserved.end()) {
    fail(
        ErrorKind::invalid_request,
        place,
        "the name of {} must be a C identifier, found '{}'",
        what,
        name);
  }
}

// Names that one kernel's source sees.
class Names {
 public:
  explicit Names(std::string_view place) : place_(place) {}

  void add(const std::string& name, std::string_view what) {
    check_name(name, what, place_);
    add_unchecked(name);
  }
  void add_input(const std::string& name) {
    add(name, "an input");
    for (std::string_view suffix : kSuffixes) {
      add_unchecked(fmt::format("{}{}", name, suffix));
    }
  }

 private:
  void add_unchecked(std::string name) {
    auto [known, is_new] = names_.insert(std::move(name));
    if (!is_new) {
      fail(
          ErrorKind::invalid_request,
          place_,
          "the name '{}' stands for two things",
          *known);
    }
  }

  std::string_view place_;
  std::set<std::string> names_;
};

Names names_of(const CustomKernelSpec& spec, std::string_view place) {
  Names names(place);
  for (const auto& name : spec.input_names) {
    names.add_input(name);
  }
  for (const auto& name : spec.output_names) {
    names.add(name, "an output");
  }
  return names;
}

void check_source(
    const std::optional<DeviceKernelSource>& source,
    std::string_view backend,
    std::string_view place) {
  if (!source) {
    return;
  }
  if (source->source.empty()) {
    fail(ErrorKind::invalid_request, place, "the {} source is empty", backend);
  }
  if (source->shared_memory < 0) {
    fail(
        ErrorKind::invalid_request,
        place,
        "shared memory must not be negative, found {}",
        source->shared_memory);
  }
  source->requirement.unmet({}, place);
}

void check_count(
    size_t found,
    size_t wanted,
    std::string_view what,
    std::string_view place) {
  if (found != wanted) {
    fail(
        ErrorKind::invalid_request,
        place,
        "takes {} {}, found {}",
        wanted,
        what,
        found);
  }
}

void check_size(
    const KernelSize& size,
    std::string_view what,
    std::string_view place) {
  if (size.x < 1 || size.y < 1 || size.z < 1) {
    fail(
        ErrorKind::invalid_request,
        place,
        "the {} must be at least 1 along each axis, found {} x {} x {}",
        what,
        size.x,
        size.y,
        size.z);
  }
}

// Whether an array of that shape could exist at all.
void check_shape(
    const mx::Shape& shape,
    mx::Dtype dtype,
    std::string_view output,
    std::string_view place) {
  constexpr auto kMostBytes = std::numeric_limits<int64_t>::max();
  bool is_empty = std::ranges::find(shape, 0) != shape.end();
  int64_t bytes = mx::size_of(dtype);
  for (int extent : shape) {
    if (extent < 0 || (!is_empty && bytes > kMostBytes / extent)) {
      fail(
          ErrorKind::invalid_request,
          place,
          "output '{}' cannot have the shape ({})",
          output,
          fmt::join(shape, ", "));
    }
    bytes = is_empty ? 0 : bytes * extent;
  }
}

// Values that the conversion from float would leave to chance.
void check_init_value(
    float value,
    mx::Dtype dtype,
    std::string_view output,
    std::string_view place) {
  if (is_float(dtype) || dtype == mx::complex64) {
    return;
  }
  // The first power of two above what the dtype holds, and its least value.
  bool is_signed = mx::issubdtype(dtype, mx::signedinteger);
  int bits = dtype == mx::bool_ ? 1 : 8 * mx::size_of(dtype);
  float above = std::ldexp(1.0f, bits - (is_signed ? 1 : 0));
  float least = is_signed ? -above : 0.0f;
  if (!(value >= least && value < above) || std::trunc(value) != value) {
    fail(
        ErrorKind::invalid_request,
        place,
        "the initial value {} does not fit into '{}' of {}",
        value,
        output,
        dtype_name(dtype));
  }
}

}  // namespace

void check_spec(const CustomKernelSpec& spec, std::string_view place) {
  check_name(spec.name, "a kernel", place);
  names_of(spec, place);
  if (spec.output_names.empty()) {
    fail(ErrorKind::invalid_request, place, "has no outputs");
  }
  check_source(spec.metal, "Metal", place);
  check_source(spec.cuda, "CUDA", place);
  if (!spec.metal && !spec.cuda && !spec.cpu && !spec.fallback) {
    fail(
        ErrorKind::invalid_request,
        place,
        "has neither code for a backend nor a fallback");
  }
}

bool is_empty(const CustomKernelCall& call) {
  return std::ranges::all_of(call.output_shapes, [](const mx::Shape& shape) {
    return std::ranges::find(shape, 0) != shape.end();
  });
}

void check_call(
    const CustomKernelSpec& spec,
    const CustomKernelCall& call,
    std::string_view place) {
  size_t outputs = spec.output_names.size();
  check_count(call.inputs.size(), spec.input_names.size(), "inputs", place);
  check_count(call.output_shapes.size(), outputs, "output shapes", place);
  check_count(call.output_dtypes.size(), outputs, "output dtypes", place);
  for (size_t i = 0; i < outputs; ++i) {
    mx::Dtype dtype = call.output_dtypes[i];
    check_shape(call.output_shapes[i], dtype, spec.output_names[i], place);
    if (call.init_value) {
      check_init_value(*call.init_value, dtype, spec.output_names[i], place);
    }
  }
  Names names = names_of(spec, place);
  for (const auto& [name, value] : call.template_values) {
    names.add(name, "a template value");
  }
  if (!is_empty(call)) {
    check_size(call.grid, "grid", place);
  }
  check_size(call.threadgroup, "threadgroup", place);
  const KernelSize& group = call.threadgroup;
  // Each factor is checked too, so that the product cannot overflow.
  int64_t plane = static_cast<int64_t>(group.x) * group.y;
  if (plane > kMostThreadsPerGroup || plane * group.z > kMostThreadsPerGroup) {
    fail(
        ErrorKind::invalid_request,
        place,
        "a threadgroup has at most {} threads, found {} x {} x {}",
        kMostThreadsPerGroup,
        group.x,
        group.y,
        group.z);
  }
}

void check_device_call(
    const CustomKernelSpec& spec,
    const DeviceKernelSource& source,
    const CustomKernelCall& call,
    Backend backend,
    std::string_view place) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (call.inputs[i].ndim() > 0) {
      continue;
    }
    // MLX does not declare these names for a 0-d input.
    for (std::string_view suffix : kSuffixes) {
      std::string read = fmt::format("{}{}", spec.input_names[i], suffix);
      if (source.source.find(read) != std::string::npos) {
        fail(
            ErrorKind::invalid_request,
            place,
            "the source reads {}, and that input has no dimensions",
            read);
      }
    }
  }
  if (backend != Backend::cuda) {
    return;
  }
  const KernelSize& grid = call.grid;
  const KernelSize& group = call.threadgroup;
  int64_t groups_y = (static_cast<int64_t>(grid.y) + group.y - 1) / group.y;
  int64_t groups_z = (static_cast<int64_t>(grid.z) + group.z - 1) / group.z;
  if (group.z > kMostCudaGroupZ || groups_y > kMostCudaGroupsYZ ||
      groups_z > kMostCudaGroupsYZ) {
    fail(
        ErrorKind::invalid_request,
        place,
        "CUDA has at most {} threads of a group along z and {} groups along y "
        "and z, found a grid of {} x {} x {} in groups of {} x {} x {}",
        kMostCudaGroupZ,
        kMostCudaGroupsYZ,
        grid.x,
        grid.y,
        grid.z,
        group.x,
        group.y,
        group.z);
  }
}

}  // namespace mlxx
