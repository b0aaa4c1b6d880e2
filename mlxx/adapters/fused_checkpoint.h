#pragma once

#include <memory>

#include "mlxx/adapters/fuse.h"
#include "mlxx/adapters/weight_changes.h"

namespace mlxx::adapters {

// A checkpoint with changes in its weights.
class FusedCheckpoint : public hub::Checkpoint {
 public:
  FusedCheckpoint(
      std::shared_ptr<const hub::Checkpoint> source,
      WeightChanges changes,
      const FuseOptions& options);

  const std::filesystem::path& path() const override {
    return source_->path();
  }
  std::string format() const override {
    return source_->format();
  }
  const Json& config() const override;
  const Json& generation_config() const override {
    return source_->generation_config();
  }
  const hub::TextFiles& text() const override {
    return source_->text();
  }
  const std::vector<hub::TensorInfo>& tensors() const override {
    return tensors_;
  }
  uint64_t file_bytes() const override {
    return source_->file_bytes();
  }
  // Lazy where something is computed.
  hub::Weight load(const std::string& name, const hub::LoadDtype& dtype)
      const override;

  // What becomes of each changed weight. A change of nothing is left out from
  // then on: the weight stays as it is.
  FuseReport measure(const hub::LoadDtype& dtype);

 private:
  std::shared_ptr<const hub::Checkpoint> source_;
  std::map<std::string, WeightChanges::Change> changes_;
  FuseOptions options_;
  std::shared_ptr<const Json> config_;
  std::vector<hub::TensorInfo> tensors_;
};

}  // namespace mlxx::adapters
