#include "mlxx/hub/gguf_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <unordered_set>

#include "mlxx/base/error.h"
#include "mlxx/base/utf8.h"
#include "mlxx/core/foreign_file.h"

namespace mlxx::hub {

namespace {

static_assert(
    std::endian::native == std::endian::little,
    "numbers are read as the file has them");

// Longer ones are no names; the format's own limits are 65,535 and 64.
constexpr uint64_t kMaxKeyBytes = 65'535;
constexpr uint64_t kMaxNameBytes = 255;
constexpr uint32_t kMaxAxes = 4;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;
// The least that a record takes, to bound the counts by the file's size: an
// empty key with a one-byte value; an empty name with one axis.
constexpr uint64_t kLeastKeyValueBytes = 8 + 4 + 1;
constexpr uint64_t kLeastTensorBytes = 8 + 4 + 8 + 4 + 8;

// A position in the file that cannot leave it.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& place)
      : bytes_(bytes), place_(place) {}

  uint64_t position() const {
    return position_;
  }
  uint64_t rest() const {
    return bytes_.size() - position_;
  }

  // `what` names the thing in the error.
  std::span<const std::byte> take(uint64_t length, std::string_view what) {
    if (length > rest()) {
      fail(
          ErrorKind::bad_file,
          place_,
          "{} needs {} bytes at byte {}, the file has {} left",
          what,
          length,
          position_,
          rest());
    }
    auto part = bytes_.subspan(position_, length);
    position_ += length;
    return part;
  }

  template <typename T>
  T number(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string_view text(std::string_view what, uint64_t max = UINT64_MAX) {
    auto length = number<uint64_t>(what);
    if (length > max) {
      fail(
          ErrorKind::bad_file,
          place_,
          "{} has {} bytes, the limit is {}",
          what,
          length,
          max);
    }
    auto part = take(length, what);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& place_;
  uint64_t position_ = 0;
};

std::string
name_text(std::string_view name, const char* what, const std::string& place) {
  if (name.empty() || !is_valid_utf8(name)) {
    fail(
        ErrorKind::bad_file,
        place,
        "a {} name is {}",
        what,
        name.empty() ? "empty" : "not valid UTF-8");
  }
  return std::string(name);
}

GgufValue
read_array(Cursor& cursor, const std::string& key, const std::string& place) {
  GgufValue value{.type = GgufValueType::array, .bytes = {}};
  value.element = static_cast<GgufValueType>(cursor.number<uint32_t>(key));
  value.count = cursor.number<uint64_t>(key);
  if (value.element == GgufValueType::string) {
    if (value.count > cursor.rest() / sizeof(uint64_t)) {
      fail(
          ErrorKind::bad_file,
          place,
          "'{}' announces {} strings, the file has {} bytes left",
          key,
          value.count,
          cursor.rest());
    }
    Cursor walk = cursor;
    for (uint64_t i = 0; i < value.count; ++i) {
      walk.text(key);
    }
    value.bytes = cursor.take(walk.position() - cursor.position(), key);
    return value;
  }
  size_t size = gguf_scalar_bytes(value.element);
  if (size == 0) {
    fail(
        ErrorKind::bad_file,
        place,
        "'{}' is a list of {}",
        key,
        value.element == GgufValueType::array
            ? std::string("lists")
            : fmt::format(
                  "values of the unknown type {}",
                  static_cast<uint32_t>(value.element)));
  }
  if (value.count > cursor.rest() / size) {
    fail(
        ErrorKind::bad_file,
        place,
        "'{}' announces {} elements of {} bytes, the file has {} left",
        key,
        value.count,
        size,
        cursor.rest());
  }
  value.bytes = cursor.take(value.count * size, key);
  return value;
}

void read_metadata(Cursor& cursor, uint64_t count, GgufMetadata& metadata) {
  const std::string& place = metadata.place();
  for (uint64_t i = 0; i < count; ++i) {
    std::string_view raw = cursor.text("a key", kMaxKeyBytes);
    std::string key = name_text(raw, "key", place);
    GgufValue value{};
    value.type = static_cast<GgufValueType>(cursor.number<uint32_t>(key));
    if (value.type == GgufValueType::array) {
      value = read_array(cursor, key, place);
    } else if (value.type == GgufValueType::string) {
      auto text = cursor.text(key);
      value.bytes = std::as_bytes(std::span(text.data(), text.size()));
    } else if (size_t size = gguf_scalar_bytes(value.type)) {
      value.bytes = cursor.take(size, key);
    } else {
      fail(
          ErrorKind::bad_file,
          place,
          "'{}' has the unknown type {}",
          key,
          static_cast<uint32_t>(value.type));
    }
    if (!metadata.add(raw, value)) {
      fail(ErrorKind::bad_file, place, "the key '{}' stands twice", key);
    }
  }
}

uint64_t read_alignment(const GgufMetadata& metadata) {
  constexpr auto kKey = "general.alignment";
  const GgufValue* value = metadata.find(kKey);
  if (!value) {
    return 32;
  }
  if (value->type != GgufValueType::uint32) {
    metadata.fail_at(kKey, "must be a uint32");
  }
  auto alignment = static_cast<uint64_t>(metadata.integer(kKey, 0, UINT32_MAX));
  if (!std::has_single_bit(alignment) || alignment < 8 ||
      alignment > kMaxAlignment) {
    metadata.fail_at(
        kKey,
        fmt::format(
            "is {}, must be a power of two from 8 to {}",
            alignment,
            kMaxAlignment));
  }
  return alignment;
}

// Dimensions, type and byte count; the offset is still the data section's.
GgufTensor read_tensor(Cursor& cursor, const std::string& place) {
  GgufTensor tensor{};
  tensor.name =
      name_text(cursor.text("a tensor's name", kMaxNameBytes), "tensor", place);
  auto axes = cursor.number<uint32_t>(tensor.name);
  if (axes < 1 || axes > kMaxAxes) {
    fail(
        ErrorKind::bad_file,
        place,
        "tensor '{}' has {} axes, allowed 1 to {}",
        tensor.name,
        axes,
        kMaxAxes);
  }
  uint64_t count = 1;
  for (uint32_t i = 0; i < axes; ++i) {
    auto n = cursor.number<uint64_t>(tensor.name);
    // 2^60 elements leave room for bits and bytes in 64 bits.
    if (n < 1 || __builtin_mul_overflow(count, n, &count) ||
        count > uint64_t{1} << 60) {
      fail(
          ErrorKind::bad_file,
          place,
          "tensor '{}': axis {} of {} is {}",
          tensor.name,
          i,
          n,
          n < 1 ? "empty" : "too large");
    }
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(n));
  }
  auto id = cursor.number<uint32_t>(tensor.name);
  tensor.type = find_gguf_type(id);
  if (!tensor.type) {
    fail(
        ErrorKind::unsupported,
        place,
        "tensor '{}' has the unknown type {}",
        tensor.name,
        id);
  }
  auto row = static_cast<uint64_t>(tensor.shape.back());
  if (row % tensor.type->block != 0) {
    fail(
        ErrorKind::bad_file,
        place,
        "tensor '{}': a row of {} is no whole number of {} blocks of {}",
        tensor.name,
        row,
        tensor.type->name,
        tensor.type->block);
  }
  if (__builtin_mul_overflow(
          count / tensor.type->block,
          uint64_t{tensor.type->bytes},
          &tensor.nbytes)) {
    fail(ErrorKind::bad_file, place, "tensor '{}' is too large", tensor.name);
  }
  tensor.offset = cursor.number<uint64_t>(tensor.name);
  return tensor;
}

void check_overlaps(
    const std::vector<GgufTensor>& tensors,
    const std::string& place) {
  std::vector<const GgufTensor*> order;
  for (const auto& tensor : tensors) {
    order.push_back(&tensor);
  }
  std::ranges::sort(order, {}, &GgufTensor::offset);
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->offset + order[i - 1]->nbytes > order[i]->offset) {
      fail(
          ErrorKind::bad_file,
          place,
          "tensors '{}' and '{}' overlap",
          order[i - 1]->name,
          order[i]->name);
    }
  }
}

void check_count(
    uint64_t count,
    uint64_t least,
    uint64_t rest,
    const char* what,
    const std::string& place) {
  if (count > rest / least) {
    fail(
        ErrorKind::bad_file,
        place,
        "{} {} are announced, the file has {} bytes left",
        count,
        what,
        rest);
  }
}

void check_start(Cursor& cursor, const MappedFile& file) {
  std::string place = file.path().string();
  auto bytes = file.bytes();
  if (bytes.empty()) {
    fail(ErrorKind::bad_file, place, "the file is empty");
  }
  bool is_gguf = bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0;
  if (!is_gguf) {
    auto meaning = describe_foreign_file(bytes);
    fail(
        ErrorKind::bad_file,
        place,
        "not a GGUF file{}{}",
        meaning ? " but " : ", it does not begin with 'GGUF'",
        meaning.value_or(""));
  }
  cursor.take(4, "the file's mark");
  auto version = cursor.number<uint32_t>("the version");
  if (version == 2 || version == 3) {
    return;
  }
  bool is_big_endian = version != 0 && (version & 0xffff) == 0;
  fail(
      version == 1 || is_big_endian ? ErrorKind::unsupported
                                    : ErrorKind::bad_file,
      place,
      "{}, readable are 2 and 3{}",
      is_big_endian ? std::string("a big-endian GGUF file")
                    : fmt::format("GGUF version {}", version),
      is_big_endian ? " in little-endian order" : "");
}

}  // namespace

GgufFile::GgufFile(const std::filesystem::path& path)
    : file_(path), metadata_(path.string()) {
  const std::string& place = metadata_.place();
  Cursor cursor(file_.bytes(), place);
  check_start(cursor, file_);
  auto tensor_count = cursor.number<uint64_t>("the number of tensors");
  auto value_count = cursor.number<uint64_t>("the number of keys");
  check_count(value_count, kLeastKeyValueBytes, cursor.rest(), "keys", place);
  read_metadata(cursor, value_count, metadata_);

  check_count(tensor_count, kLeastTensorBytes, cursor.rest(), "tensors", place);
  std::unordered_set<std::string_view> names;
  tensors_.reserve(tensor_count);
  for (uint64_t i = 0; i < tensor_count; ++i) {
    tensors_.push_back(read_tensor(cursor, place));
    // Reserved above: the names do not move.
    if (!names.insert(tensors_.back().name).second) {
      fail(
          ErrorKind::bad_file,
          place,
          "the tensor '{}' stands twice",
          tensors_.back().name);
    }
  }

  uint64_t alignment = read_alignment(metadata_);
  data_offset_ = (cursor.position() + alignment - 1) / alignment * alignment;
  uint64_t data_bytes =
      file_.size() > data_offset_ ? file_.size() - data_offset_ : 0;
  for (auto& tensor : tensors_) {
    if (tensor.offset % alignment != 0) {
      fail(
          ErrorKind::bad_file,
          place,
          "tensor '{}': offset {} is no multiple of {}",
          tensor.name,
          tensor.offset,
          alignment);
    }
    if (tensor.offset > data_bytes ||
        tensor.nbytes > data_bytes - tensor.offset) {
      fail(
          ErrorKind::bad_file,
          place,
          "file truncated: tensor '{}' needs {} bytes at {} of the data, the "
          "file holds {}",
          tensor.name,
          tensor.nbytes,
          tensor.offset,
          data_bytes);
    }
    tensor.offset += data_offset_;
  }
  check_overlaps(tensors_, place);
}

}  // namespace mlxx::hub
