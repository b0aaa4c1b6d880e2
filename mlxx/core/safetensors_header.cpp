#include "mlxx/core/safetensors_header.h"

#include <algorithm>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/json.h"

namespace mlxx {

namespace {

// Builds the entries while the JSON is scanned, so that a hostile header costs
// no memory beyond its own length.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  HeaderReader(SafetensorsHeader& header, const std::string& place)
      : header_(header), place_(place) {}

  bool null() override {
    // As MLX writes a file without metadata.
    if (level_ == Level::top && name_ == "__metadata__") {
      return true;
    }
    wrong_value("null");
  }
  bool boolean(bool) override {
    wrong_value("a boolean");
  }
  bool number_integer(number_integer_t value) override {
    fail(
        ErrorKind::bad_file,
        place_,
        "tensor '{}': {} in '{}' is negative",
        entry_.name,
        value,
        field_);
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (level_ != Level::list) {
      wrong_value("a number");
    }
    if (value > static_cast<uint64_t>(INT64_MAX)) {
      fail(
          ErrorKind::bad_file,
          place_,
          "tensor '{}': {} in '{}' is too large",
          entry_.name,
          value,
          field_);
    }
    // A shape has few axes; anything longer is not one.
    if (numbers_->size() >= 32) {
      fail(
          ErrorKind::bad_file,
          place_,
          "tensor '{}': '{}' has too many numbers",
          entry_.name,
          field_);
    }
    numbers_->push_back(static_cast<int64_t>(value));
    return true;
  }
  bool number_float(number_float_t, const string_t& text) override {
    wrong_value("the number " + text);
  }
  bool string(string_t& value) override {
    if (level_ == Level::metadata) {
      header_.metadata[field_] = value;
      return true;
    }
    if (level_ != Level::tensor || field_ != "dtype") {
      wrong_value("a string");
    }
    entry_.dtype = value;
    return true;
  }
  bool binary(binary_t&) override {
    return false;
  }
  bool start_object(std::size_t) override {
    switch (level_) {
      case Level::start:
        level_ = Level::top;
        return true;
      case Level::top:
        level_ = name_ == "__metadata__" ? Level::metadata : Level::tensor;
        entry_ = {};
        entry_.name = name_;
        offsets_.clear();
        fields_.clear();
        return true;
      default:
        wrong_value("an object");
    }
  }
  bool key(string_t& key) override {
    if (level_ == Level::top) {
      if (!names_.insert(key).second) {
        fail(ErrorKind::bad_file, place_, "tensor '{}' stands twice", key);
      }
      name_ = key;
      field_ = key;
      return true;
    }
    bool is_known = level_ == Level::metadata || key == "dtype" ||
        key == "shape" || key == "data_offsets";
    if (!is_known) {
      fail(
          ErrorKind::bad_file,
          place_,
          "tensor '{}' has an unknown field '{}'",
          entry_.name,
          key);
    }
    if (!fields_.insert(key).second) {
      fail(
          ErrorKind::bad_file,
          place_,
          "'{}' has the field '{}' twice",
          name_,
          key);
    }
    field_ = key;
    return true;
  }
  bool end_object() override {
    if (level_ == Level::tensor) {
      finish_tensor();
    }
    level_ = level_ == Level::top ? Level::start : Level::top;
    return true;
  }
  bool start_array(std::size_t) override {
    if (level_ != Level::tensor ||
        (field_ != "shape" && field_ != "data_offsets")) {
      wrong_value("a list");
    }
    level_ = Level::list;
    numbers_ = field_ == "shape" ? &entry_.shape : &offsets_;
    return true;
  }
  bool end_array() override {
    level_ = Level::tensor;
    return true;
  }
  bool parse_error(
      std::size_t position,
      const std::string& token,
      const nlohmann::detail::exception&) override {
    fail(
        ErrorKind::bad_file,
        place_,
        "the header is not valid JSON at byte {} near '{}'",
        position,
        token.substr(0, 40));
  }

 private:
  enum class Level { start, top, metadata, tensor, list };

  [[noreturn]] void wrong_value(const std::string& found) {
    if (level_ == Level::start) {
      fail(
          ErrorKind::bad_file,
          place_,
          "the header must be a JSON object, found {}",
          found);
    }
    if (level_ == Level::metadata) {
      fail(
          ErrorKind::bad_file,
          place_,
          "__metadata__ may hold strings only, '{}' is {}",
          field_,
          found);
    }
    fail(
        ErrorKind::bad_file,
        place_,
        "tensor '{}': unexpected {}{}",
        name_,
        found,
        level_ == Level::top ? "" : " in '" + field_ + "'");
  }

  // Shape, dtype and byte range must agree.
  void finish_tensor() {
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      if (!fields_.contains(field)) {
        fail(
            ErrorKind::bad_file,
            place_,
            "tensor '{}' has no '{}'",
            entry_.name,
            field);
      }
    }
    auto bits = safetensors_bits(entry_.dtype);
    if (!bits) {
      fail(
          ErrorKind::unsupported,
          place_,
          "tensor '{}' has the unknown dtype '{}'",
          entry_.name,
          entry_.dtype);
    }
    if (offsets_.size() != 2) {
      fail(
          ErrorKind::bad_file,
          place_,
          "tensor '{}': data_offsets must be two numbers, found {}",
          entry_.name,
          offsets_.size());
    }
    if (offsets_[0] > offsets_[1]) {
      fail(
          ErrorKind::bad_file,
          place_,
          "tensor '{}': data_offsets [{}, {}] run backwards",
          entry_.name,
          offsets_[0],
          offsets_[1]);
    }
    uint64_t expected = 1;
    bool overflow = false;
    for (int64_t n : entry_.shape) {
      overflow |=
          __builtin_mul_overflow(expected, static_cast<uint64_t>(n), &expected);
    }
    overflow |= __builtin_mul_overflow(
        expected,
        static_cast<uint64_t>(*bits),
        &expected);
    if (overflow || expected % 8 != 0) {
      fail(
          ErrorKind::bad_file,
          place_,
          "tensor '{}': shape [{}] of {} is {}",
          entry_.name,
          fmt::join(entry_.shape, ", "),
          entry_.dtype,
          overflow ? "too large" : "no whole number of bytes");
    }
    expected /= 8;
    auto actual = static_cast<uint64_t>(offsets_[1] - offsets_[0]);
    if (expected != actual) {
      fail(
          ErrorKind::bad_file,
          place_,
          "tensor '{}': shape [{}] of {} needs {} bytes, data_offsets give {}",
          entry_.name,
          fmt::join(entry_.shape, ", "),
          entry_.dtype,
          expected,
          actual);
    }
    entry_.offset = static_cast<uint64_t>(offsets_[0]);
    entry_.nbytes = actual;
    header_.entries.push_back(std::move(entry_));
  }

  SafetensorsHeader& header_;
  const std::string& place_;
  Level level_ = Level::start;
  std::string name_;   // key of the top level
  std::string field_;  // key inside it
  SafetensorsEntry entry_{};
  std::vector<int64_t> offsets_;
  std::vector<int64_t>* numbers_ = nullptr;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> fields_;
};

// The ranges, in the order of the data, must follow each other from the first
// byte to the last, as the reference reader demands.
void check_coverage(
    const std::vector<SafetensorsEntry>& entries,
    uint64_t data_bytes,
    const std::string& place) {
  std::vector<const SafetensorsEntry*> order;
  for (const auto& entry : entries) {
    order.push_back(&entry);
  }
  std::ranges::sort(order, [](const auto* a, const auto* b) {
    return std::pair(a->offset, a->nbytes) < std::pair(b->offset, b->nbytes);
  });
  uint64_t end = 0;
  const SafetensorsEntry* previous = nullptr;
  for (const auto* entry : order) {
    if (entry->offset + entry->nbytes > data_bytes) {
      fail(
          ErrorKind::bad_file,
          place,
          "file truncated: tensor '{}' ends at byte {} of the data, the file "
          "holds {}",
          entry->name,
          entry->offset + entry->nbytes,
          data_bytes);
    }
    if (entry->offset < end) {
      fail(
          ErrorKind::bad_file,
          place,
          "tensors '{}' and '{}' overlap",
          previous->name,
          entry->name);
    }
    if (entry->offset > end) {
      fail(
          ErrorKind::bad_file,
          place,
          "{} bytes before tensor '{}' belong to no tensor",
          entry->offset - end,
          entry->name);
    }
    end = entry->offset + entry->nbytes;
    previous = entry;
  }
  if (end != data_bytes) {
    fail(
        ErrorKind::bad_file,
        place,
        "{} bytes after the last tensor belong to no tensor",
        data_bytes - end);
  }
}

}  // namespace

std::optional<int> safetensors_bits(std::string_view dtype) {
  struct Row {
    std::string_view name;
    int bits;
  };
  static constexpr Row kRows[] = {
      {"BF16", 16}, {"F16", 16},        {"F32", 32},        {"U32", 32},
      {"U8", 8},    {"I8", 8},          {"I16", 16},        {"U16", 16},
      {"I32", 32},  {"I64", 64},        {"U64", 64},        {"BOOL", 8},
      {"F64", 64},  {"F8_E4M3", 8},     {"F8_E5M2", 8},     {"F8_E8M0", 8},
      {"C64", 64},  {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
  };
  for (const auto& row : kRows) {
    if (row.name == dtype) {
      return row.bits;
    }
  }
  return std::nullopt;
}

SafetensorsHeader parse_safetensors_header(
    std::string_view text,
    uint64_t data_bytes,
    const std::string& place) {
  if (!text.starts_with('{')) {
    fail(
        ErrorKind::bad_file,
        place,
        "the header must begin with '{{', {}",
        text.starts_with("\xEF\xBB\xBF") ? "found a byte order mark"
                                         : "found something else");
  }
  SafetensorsHeader header;
  HeaderReader reader(header, place);
  Json::sax_parse(text.begin(), text.end(), &reader);
  check_coverage(header.entries, data_bytes, place);
  return header;
}

}  // namespace mlxx
