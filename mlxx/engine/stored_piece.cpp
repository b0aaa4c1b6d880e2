#include "mlxx/engine/stored_piece.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/base/sha256.h"
#include "mlxx/core/safetensors.h"

namespace mlxx::engine {
namespace {

constexpr const char* kChecksum = "sha256";

// Everything goes in behind its length, so that no two pieces look the same.
class Checksum {
 public:
  void add(std::string_view text) {
    std::string head = fmt::format("{}:", text.size());
    hash_.update(std::as_bytes(std::span(head)));
    hash_.update(std::as_bytes(std::span(text)));
  }
  void add_notes(const std::map<std::string, std::string>& notes) {
    for (const auto& [name, value] : notes) {
      if (name != kChecksum) {
        add(name);
        add(value);
      }
    }
  }
  void add_array(
      std::string_view name,
      std::string_view dtype,
      const std::vector<int64_t>& shape,
      std::span<const std::byte> bytes) {
    add(name);
    add(dtype);
    add(fmt::format("{}", fmt::join(shape, ",")));
    add({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  std::string hex() {
    return hash_.hex();
  }

 private:
  Sha256 hash_;
};

std::vector<const StoredPiece::Array*> by_name(const StoredPiece& piece) {
  std::vector<const StoredPiece::Array*> arrays;
  for (const auto& array : piece.arrays) {
    arrays.push_back(&array);
  }
  std::ranges::sort(arrays, {}, [](auto* array) { return array->name; });
  return arrays;
}

}  // namespace

size_t StoredPiece::nbytes() const {
  size_t bytes = 0;
  for (const auto& array : arrays) {
    bytes += array.bytes.size();
  }
  return bytes;
}

std::string piece_head(const StoredPiece& piece) {
  Checksum checksum;
  checksum.add_notes(piece.notes);
  for (const auto* array : by_name(piece)) {
    checksum.add_array(array->name, array->dtype, array->shape, array->bytes);
  }
  auto notes = piece.notes;
  notes[kChecksum] = checksum.hex();
  OrderedJson header = OrderedJson::object();
  header["__metadata__"] = notes;
  uint64_t offset = 0;
  for (const auto& array : piece.arrays) {
    uint64_t end = offset + array.bytes.size();
    header[array.name] = {
        {"dtype", array.dtype},
        {"shape", array.shape},
        {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  // The data begins on a multiple of 8.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string head;
  for (size_t i = 0; i < 8; ++i) {
    head.push_back(static_cast<char>(text.size() >> (8 * i)));
  }
  return head.append(text);
}

LoadedPiece load_piece(const std::filesystem::path& path) {
  SafetensorsFile file(path);
  LoadedPiece piece;
  piece.notes = file.metadata();
  auto expected = piece.notes.find(kChecksum);
  if (expected == piece.notes.end()) {
    fail(ErrorKind::bad_file, path.string(), "has no checksum");
  }
  Checksum checksum;
  checksum.add_notes(piece.notes);
  for (const auto& entry : file.entries()) {
    mx::array array = file.load(entry);
    checksum.add_array(
        entry.name,
        entry.dtype,
        entry.shape,
        {array.size() == 0 ? nullptr : array.data<std::byte>(),
         array.nbytes()});
    piece.arrays.emplace(entry.name, std::move(array));
  }
  if (checksum.hex() != expected->second) {
    fail(
        ErrorKind::bad_file,
        path.string(),
        "its checksum is not that of its content");
  }
  piece.notes.erase(kChecksum);
  return piece;
}

}  // namespace mlxx::engine
