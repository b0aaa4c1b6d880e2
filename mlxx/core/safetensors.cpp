#include "mlxx/core/safetensors.h"

#include <algorithm>
#include <cstring>

#include "mlxx/base/error.h"
#include "mlxx/core/foreign_file.h"
#include "mlxx/core/host_array.h"
#include "mlxx/core/safetensors_header.h"

namespace mlxx {

namespace {

constexpr uint64_t kLengthBytes = 8;
// The reference reader's limit.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
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

}  // namespace

std::optional<mx::Dtype> safetensors_mlx_dtype(std::string_view dtype) {
  struct Row {
    std::string_view name;
    mx::Dtype dtype;
  };
  static const Row kRows[] = {
      {"BF16", mx::bfloat16},
      {"F16", mx::float16},
      {"F32", mx::float32},
      {"U32", mx::uint32},
      {"U8", mx::uint8},
      {"I8", mx::int8},
      {"I16", mx::int16},
      {"U16", mx::uint16},
      {"I32", mx::int32},
      {"I64", mx::int64},
      {"U64", mx::uint64},
      {"BOOL", mx::bool_},
      {"C64", mx::complex64},
  };
  for (const auto& row : kRows) {
    if (row.name == dtype) {
      return row.dtype;
    }
  }
  return std::nullopt;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(path) {
  std::string place = path.string();
  auto bytes = file_.bytes();
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
  if (length > rest || length > kMaxHeaderBytes) {
    fail_foreign(
        file_,
        place,
        fmt::format(
            "a header of {} bytes is announced, {}",
            length,
            length > rest ? fmt::format("the file has {}", rest)
                          : fmt::format("the limit is {}", kMaxHeaderBytes)));
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
  file_.release(0, kLengthBytes + length);
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
  auto dtype = safetensors_mlx_dtype(entry.dtype);
  if (!dtype) {
    fail(
        ErrorKind::unsupported,
        path().string(),
        "tensor '{}' is {}, which cannot be computed with",
        entry.name,
        entry.dtype);
  }
  mx::Shape shape;
  for (int64_t n : entry.shape) {
    if (n > INT32_MAX) {
      fail(
          ErrorKind::unsupported,
          path().string(),
          "tensor '{}' has an axis of {}, the limit is {}",
          entry.name,
          n,
          INT32_MAX);
    }
    shape.push_back(static_cast<int32_t>(n));
  }
  file_.check_size();
  HostArray result = make_host_array(shape, *dtype);
  const std::byte* source = file_.bytes().data() + entry.offset;
  for (uint64_t done = 0; done < entry.nbytes; done += kCopyBytes) {
    uint64_t n = std::min(kCopyBytes, entry.nbytes - done);
    std::memcpy(result.data + done, source + done, n);
    file_.release(entry.offset + done, n);
  }
  return result.array;
}

}  // namespace mlxx
