#include "mlxx/core/safetensors_writer.h"

#include <cerrno>
#include <cstring>
#include <set>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/json.h"

namespace mlxx {

namespace {

// A file under a temporary name that disappears unless it is committed.
class PendingFile {
 public:
  explicit PendingFile(const std::filesystem::path& target)
      : target_(target), temporary_(target.string() + ".XXXXXX") {
    descriptor_ = ::mkstemp(temporary_.data());
    if (descriptor_ < 0) {
      fail_errno("cannot create a file there");
    }
  }
  ~PendingFile() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
      ::unlink(temporary_.c_str());
    }
  }
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  void write(const void* data, size_t size) {
    const char* at = static_cast<const char*>(data);
    while (size > 0) {
      ssize_t n = ::write(descriptor_, at, size);
      if (n < 0 && errno == EINTR) {
        continue;
      }
      if (n <= 0) {
        fail_errno("cannot write");
      }
      at += n;
      size -= static_cast<size_t>(n);
    }
  }

  void commit() {
    if (::fchmod(descriptor_, 0644) != 0 || ::fsync(descriptor_) != 0 ||
        ::rename(temporary_.c_str(), target_.c_str()) != 0) {
      fail_errno("cannot write");
    }
    ::close(descriptor_);
    descriptor_ = -1;
  }

 private:
  [[noreturn]] void fail_errno(const char* action) {
    fail(
        ErrorKind::internal,
        target_.string(),
        "{}, {}",
        action,
        std::strerror(errno));
  }

  std::filesystem::path target_;
  std::string temporary_;
  int descriptor_ = -1;
};

const char* dtype_name(mx::Dtype dtype) {
  switch (dtype.val()) {
    case mx::Dtype::Val::bfloat16:
      return "BF16";
    case mx::Dtype::Val::float16:
      return "F16";
    case mx::Dtype::Val::float32:
      return "F32";
    case mx::Dtype::Val::uint32:
      return "U32";
    case mx::Dtype::Val::uint8:
      return "U8";
    case mx::Dtype::Val::int8:
      return "I8";
    case mx::Dtype::Val::int16:
      return "I16";
    case mx::Dtype::Val::uint16:
      return "U16";
    case mx::Dtype::Val::int32:
      return "I32";
    case mx::Dtype::Val::int64:
      return "I64";
    case mx::Dtype::Val::uint64:
      return "U64";
    case mx::Dtype::Val::bool_:
      return "BOOL";
    case mx::Dtype::Val::complex64:
      return "C64";
    default:
      return nullptr;
  }
}

uint64_t bytes_of(const SafetensorsSpec& spec) {
  uint64_t bytes = mx::size_of(spec.dtype);
  for (auto n : spec.shape) {
    bytes *= static_cast<uint64_t>(n);
  }
  return bytes;
}

std::string make_header(
    const std::vector<SafetensorsSpec>& specs,
    const SafetensorsMetadata& metadata,
    const std::string& place) {
  OrderedJson header = OrderedJson::object();
  if (!metadata.empty()) {
    header["__metadata__"] = metadata;
  }
  std::set<std::string> names{"__metadata__"};
  uint64_t offset = 0;
  for (const auto& spec : specs) {
    const char* dtype = dtype_name(spec.dtype);
    if (!dtype || !names.insert(spec.name).second) {
      fail(
          ErrorKind::invalid_request,
          place,
          "tensor '{}' {}",
          spec.name,
          dtype ? "stands twice or has a reserved name"
                : "has a dtype that safetensors lacks");
    }
    uint64_t end = offset + bytes_of(spec);
    header[spec.name] = {
        {"dtype", dtype},
        {"shape", spec.shape},
        {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    fail(
        ErrorKind::invalid_request,
        place,
        "a tensor's name or the metadata is not valid UTF-8");
  }
  // The data begins on a multiple of 8.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

void write_safetensors(
    const std::filesystem::path& path,
    const std::vector<SafetensorsSpec>& specs,
    const std::function<mx::array(size_t index)>& array_of,
    const SafetensorsMetadata& metadata) {
  std::string header = make_header(specs, metadata, path.string());
  char length[8];
  for (int i = 0; i < 8; ++i) {
    length[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  }
  PendingFile file(path);
  file.write(length, sizeof(length));
  file.write(header.data(), header.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    mx::array value = mx::contiguous(array_of(i));
    if (value.dtype() != specs[i].dtype || value.shape() != specs[i].shape) {
      fail(
          ErrorKind::internal,
          path.string(),
          "tensor '{}' differs from its announced dtype or shape",
          specs[i].name);
    }
    if (value.size() > 0) {
      value.eval();
      file.write(value.data<char>(), value.nbytes());
    }
  }
  file.commit();
}

void write_safetensors(
    const std::filesystem::path& path,
    const std::vector<std::pair<std::string, mx::array>>& arrays,
    const SafetensorsMetadata& metadata) {
  std::vector<SafetensorsSpec> specs;
  for (const auto& [name, value] : arrays) {
    specs.push_back({name, value.dtype(), value.shape()});
  }
  write_safetensors(
      path,
      specs,
      [&](size_t i) { return arrays[i].second; },
      metadata);
}

}  // namespace mlxx
