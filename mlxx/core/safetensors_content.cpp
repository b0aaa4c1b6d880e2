#include "mlxx/core/safetensors_content.h"

#include "mlxx/core/safetensors_writer.h"

namespace mlxx {

SafetensorsContent load_safetensors(const std::filesystem::path& path) {
  SafetensorsFile file(path);
  SafetensorsContent content;
  for (const auto& entry : file.entries()) {
    content.arrays.emplace(entry.name, file.load_lazily(entry));
  }
  content.metadata = file.metadata();
  return content;
}

void save_safetensors(
    const std::filesystem::path& path,
    const SafetensorsContent& content) {
  write_safetensors(
      path,
      SafetensorsArrays(content.arrays.begin(), content.arrays.end()),
      content.metadata);
}

}  // namespace mlxx
