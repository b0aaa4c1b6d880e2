#pragma once

#include <memory>
#include <stop_token>

#include "mlxx/capi/handle_table.h"
#include "mlxx/capi/mlxx.h"
#include "mlxx/generate/pipeline.h"

namespace mlxx::capi {

// What an mlxx_model stands for.
class OpenModel {
 public:
  OpenModel(generate::Pipeline pipeline, uint64_t file_bytes);
  // Gives the arrays back on the MLX thread, where they came from, and waits
  // for that outside of callbacks.
  ~OpenModel();
  OpenModel(const OpenModel&) = delete;
  OpenModel& operator=(const OpenModel&) = delete;

  const generate::Pipeline& pipeline() const {
    return *pipeline_;
  }
  const mlxx_model_info& info() const {
    return info_;
  }

 private:
  std::shared_ptr<const generate::Pipeline> pipeline_;
  mlxx_model_info info_;
};

// Handles are per process, as the ABI that hands them out is.
HandleTable<mlxx_model, OpenModel>& open_models();
HandleTable<mlxx_cancel, std::stop_source>& open_cancels();

}  // namespace mlxx::capi
