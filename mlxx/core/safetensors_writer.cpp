#include "mlxx/core/safetensors_writer.h"

#include <set>
#include <span>

#include <nlohmann/json.hpp>

#include "mlxx/base/atomic_file.h"
#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/core/dtype.h"
#include "mlxx/core/safetensors_header.h"

namespace mlxx {

namespace {

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
    if (!names.insert(spec.name).second) {
      fail(
          ErrorKind::invalid_request,
          place,
          "tensor '{}' stands twice or has a reserved name",
          spec.name);
    }
    uint64_t end = offset + bytes_of(spec);
    header[spec.name] = {
        {"dtype", dtype_info(spec.dtype).safetensors},
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
  if (text.size() > kMaxSafetensorsHeader) {
    fail(
        ErrorKind::invalid_request,
        place,
        "names and metadata take {} bytes, the format's limit is {}",
        text.size(),
        kMaxSafetensorsHeader);
  }
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
  AtomicFile file(path);
  file.write(std::span(length));
  file.write(std::span(header));
  for (size_t i = 0; i < specs.size(); ++i) {
    // The CPU reads the values, and a GPU has no float64.
    mx::array value = mx::contiguous(array_of(i), false, mx::Device::cpu);
    if (value.dtype() != specs[i].dtype || value.shape() != specs[i].shape) {
      fail(
          ErrorKind::internal,
          path.string(),
          "tensor '{}' differs from its announced dtype or shape",
          specs[i].name);
    }
    if (value.size() > 0) {
      value.eval();
      file.write(std::span(value.data<char>(), value.nbytes()));
    }
  }
  file.commit();
}

void write_safetensors(
    const std::filesystem::path& path,
    const SafetensorsArrays& arrays,
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
