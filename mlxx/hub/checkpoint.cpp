#include "mlxx/hub/checkpoint.h"

#include "mlxx/base/error.h"
#include "mlxx/hub/gguf_checkpoint.h"
#include "mlxx/hub/safetensors_checkpoint.h"

namespace mlxx::hub {

const std::vector<DroppedTensor>& Checkpoint::dropped() const {
  static const std::vector<DroppedTensor> kNone;
  return kNone;
}

std::shared_ptr<const Checkpoint> open_checkpoint(
    const std::filesystem::path& path) {
  std::error_code error;
  auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    fail(ErrorKind::not_found, path.string(), "no such file or folder");
  }
  if (std::filesystem::is_directory(status)) {
    return open_safetensors_checkpoint(path);
  }
  if (path.extension() == ".safetensors") {
    fail(
        ErrorKind::invalid_request,
        path.string(),
        "a model is a folder or a .gguf file; name the folder of this file");
  }
  return open_gguf_checkpoint(path);
}

}  // namespace mlxx::hub
