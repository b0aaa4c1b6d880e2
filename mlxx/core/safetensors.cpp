#include "mlxx/core/safetensors.h"

#include <algorithm>
#include <cstring>

#include "mlxx/base/error.h"
#include "mlxx/core/borrowed_array.h"
#include "mlxx/core/cpu_stream_primitive.h"
#include "mlxx/core/dtype.h"
#include "mlxx/core/foreign_file.h"
#include "mlxx/core/host_array.h"
#include "mlxx/core/safetensors_header.h"

namespace mlxx {

namespace {

constexpr uint64_t kLengthBytes = 8;
// Copied, then given back, so that a large tensor is not resident twice.
constexpr uint64_t kCopyBytes = uint64_t{4} << 20;

[[noreturn]] void fail_foreign(
    const MappedFile& file,
    const std::string& place,
    const std::string& otherwise) {
  if (auto meaning = describe_foreign_file(file.bytes())) {
    fail(ErrorKind::bad_file, place, "not a safetensors file but {}", *meaning);
  }
  fail(ErrorKind::bad_file, place, "{}", otherwise);
}

struct ArrayType {
  mx::Shape shape;
  mx::Dtype dtype;
};

// What MLX will hold the tensor as.
ArrayType array_type(
    const SafetensorsEntry& entry,
    const std::filesystem::path& path) {
  auto dtype = safetensors_mlx_dtype(entry.dtype);
  if (!dtype) {
    fail(
        ErrorKind::unsupported,
        path.string(),
        "tensor '{}' is {}, which cannot be computed with",
        entry.name,
        entry.dtype);
  }
  mx::Shape shape;
  // Of an empty tensor the other axes may be anything, and MLX multiplies them
  // to strides.
  int64_t stride = mx::size_of(*dtype);
  for (int64_t n : entry.shape) {
    if (n > INT32_MAX ||
        __builtin_mul_overflow(stride, std::max<int64_t>(n, 1), &stride)) {
      fail(
          ErrorKind::unsupported,
          path.string(),
          "tensor '{}' has an axis of {}, the limit is {}",
          entry.name,
          n,
          INT32_MAX);
    }
    shape.push_back(static_cast<int32_t>(n));
  }
  return {std::move(shape), *dtype};
}

void copy_tensor(
    const MappedFile& file,
    uint64_t offset,
    uint64_t nbytes,
    std::byte* target) {
  file.check_size();
  const std::byte* source = file.bytes().data() + offset;
  for (uint64_t done = 0; done < nbytes; done += kCopyBytes) {
    uint64_t n = std::min(kCopyBytes, nbytes - done);
    std::memcpy(target + done, source + done, n);
    file.release(offset + done, n);
  }
}

// Copies a tensor out of the file when it is evaluated. It runs on the thread
// that asks for the evaluation, so that its errors come out there.
class ReadTensor : public CpuStreamPrimitive {
 public:
  ReadTensor(
      mx::Stream stream,
      std::shared_ptr<const MappedFile> file,
      uint64_t offset,
      uint64_t nbytes)
      : CpuStreamPrimitive("ReadTensor", stream),
        file_(std::move(file)),
        offset_(offset),
        nbytes_(nbytes) {}

  void eval_cpu(const std::vector<mx::array>&, std::vector<mx::array>& outputs)
      override {
    HostBuffer buffer = make_host_buffer(nbytes_);
    copy_tensor(*file_, offset_, nbytes_, buffer.bytes);
    outputs[0].set_data(std::move(buffer.data));
  }

 private:
  std::shared_ptr<const MappedFile> file_;
  uint64_t offset_;
  uint64_t nbytes_;
};

}  // namespace

std::optional<mx::Dtype> safetensors_mlx_dtype(std::string_view dtype) {
  for (const auto& row : dtypes()) {
    if (row.safetensors == dtype) {
      return row.dtype;
    }
  }
  return std::nullopt;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(std::make_shared<const MappedFile>(path)) {
  std::string place = path.string();
  auto bytes = file_->bytes();
  if (bytes.empty()) {
    fail(ErrorKind::bad_file, place, "the file is empty");
  }
  if (bytes.size() < kLengthBytes) {
    fail(
        ErrorKind::bad_file,
        place,
        "the file has {} bytes, too few for a safetensors file",
        bytes.size());
  }
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) {
    length = length << 8 | static_cast<uint8_t>(bytes[i]);
  }
  uint64_t rest = bytes.size() - kLengthBytes;
  if (length > rest || length > kMaxSafetensorsHeader) {
    fail_foreign(
        *file_,
        place,
        fmt::format(
            "a header of {} bytes is announced, {}",
            length,
            length > rest
                ? fmt::format("the file has {}", rest)
                : fmt::format("the limit is {}", kMaxSafetensorsHeader)));
  }
  std::string_view text(
      reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
      length);
  SafetensorsHeader header =
      parse_safetensors_header(text, rest - length, place);
  entries_ = std::move(header.entries);
  metadata_ = std::move(header.metadata);
  for (auto& entry : entries_) {
    entry.offset += kLengthBytes + length;
  }
  std::ranges::sort(entries_, {}, &SafetensorsEntry::name);
  file_->release(0, kLengthBytes + length);
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  auto at = std::ranges::lower_bound(
      entries_,
      name,
      {},
      [](const SafetensorsEntry& entry) {
        return std::string_view(entry.name);
      });
  return at != entries_.end() && at->name == name ? &*at : nullptr;
}

mx::array SafetensorsFile::load(const SafetensorsEntry& entry) const {
  ArrayType type = array_type(entry, path());
  HostArray result = make_host_array(type.shape, type.dtype);
  copy_tensor(*file_, entry.offset, entry.nbytes, result.data);
  return result.array;
}

mx::array SafetensorsFile::load_lazily(const SafetensorsEntry& entry) const {
  ArrayType type = array_type(entry, path());
  return mx::array(
      type.shape,
      type.dtype,
      std::make_shared<ReadTensor>(
          mx::default_stream(mx::Device::cpu),
          file_,
          entry.offset,
          entry.nbytes),
      {});
}

namespace {

// Gives the pages back when the last array that reads them goes.
class MappedTensor {
 public:
  MappedTensor(
      std::shared_ptr<const MappedFile> file,
      uint64_t offset,
      uint64_t nbytes)
      : file_(std::move(file)), offset_(offset), nbytes_(nbytes) {}
  ~MappedTensor() {
    file_->release(offset_, nbytes_);
  }
  MappedTensor(const MappedTensor&) = delete;
  MappedTensor& operator=(const MappedTensor&) = delete;

 private:
  std::shared_ptr<const MappedFile> file_;
  uint64_t offset_;
  uint64_t nbytes_;
};

}  // namespace

mx::array SafetensorsFile::map(const SafetensorsEntry& entry) const {
  ArrayType type = array_type(entry, path());
  file_->check_size();
  // The length and the header stand before the first tensor, so that the bytes
  // before `data` are readable.
  auto borrowed = borrow_memory(
      std::make_shared<const MappedTensor>(file_, entry.offset, entry.nbytes),
      file_->bytes().data() + entry.offset,
      type.shape,
      type.dtype);
  return borrowed ? *borrowed : load(entry);
}

}  // namespace mlxx
