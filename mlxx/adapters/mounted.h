#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mlxx/adapters/adapter_file.h"
#include "mlxx/kernels/select.h"
#include "mlxx/models/model.h"
#include "mlxx/nn/row_adapters.h"

namespace mlxx::adapters {

// One adapter in the form in which a model's layers use it.
class MountedAdapter;

// Adapters that apply to a row together, their changes added up.
class AdapterStack {
 public:
  explicit AdapterStack(
      std::vector<std::shared_ptr<const MountedAdapter>> adapters);

  // Differs from every other stack's that was ever made in this process, also
  // of one that had the same names: for states that were computed with it.
  std::string identity() const;
  const std::vector<std::shared_ptr<const MountedAdapter>>& adapters() const {
    return adapters_;
  }

  // Whether a decoder that is one program can compute with it, where the model
  // is one.
  bool fits_program() const;
  // Errors: internal if not all of it has a place there.
  std::shared_ptr<const kernels::DecoderChanges> changes_of(
      const kernels::DecoderWeights& weights) const;

 private:
  std::vector<std::shared_ptr<const MountedAdapter>> adapters_;
  // What was asked for last, on MLX's thread.
  mutable const kernels::DecoderWeights* changed_ = nullptr;
  mutable std::shared_ptr<const kernels::DecoderChanges> changes_;
};

// What the rows of one pass use: row b has stacks[b], null for none. A pass of
// one row (or none) has any number of tokens; else the layers see [B, ..., in].
// A row's bits do not depend on the others', on our CPU kernels.
std::unique_ptr<nn::RowAdapters> adapters_of_rows(
    std::vector<std::shared_ptr<const AdapterStack>> stacks);

struct AdapterInfo {
  std::string name;
  std::string format;  // "mlx-lm" or "peft"
  bool dora = false;
  int highest_rank = 0;
  int modules = 0;  // of the file
  size_t bytes = 0;
};

// The adapters of one model, which stays as it is. One thread, MLX's.
class MountedAdapters {
 public:
  MountedAdapters(
      std::shared_ptr<const models::Model> model,
      kernels::Selection selection);

  // All or nothing. Errors: those of read_adapter(); invalid_request for a name
  // that is taken or can't be one; bad_file for a module that the model has not
  // or of another shape; unsupported for one that is no linear layer.
  AdapterInfo mount(
      const std::string& name,
      const std::filesystem::path& folder);
  AdapterInfo mount(const std::string& name, AdapterFile file);
  // Rows that use it go on. not_found.
  void unmount(const std::string& name);
  std::vector<AdapterInfo> list() const;

  // "a", or "a+b" for both; null for "". not_found naming what is mounted;
  // unsupported for several of which one is DoRA.
  std::shared_ptr<const AdapterStack> find(const std::string& names) const;

 private:
  std::shared_ptr<const models::Model> model_;
  kernels::Selection selection_;
  std::map<std::string, std::shared_ptr<const MountedAdapter>> mounted_;
};

}  // namespace mlxx::adapters
