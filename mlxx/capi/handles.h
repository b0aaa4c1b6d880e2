#pragma once

#include <memory>
#include <stop_token>

#include "mlxx/capi/handle_table.h"
#include "mlxx/capi/mlx_owned.h"
#include "mlxx/capi/mlxx.h"
#include "mlxx/embed/embedding_model.h"
#include "mlxx/embed/reranker.h"
#include "mlxx/generate/pipeline.h"

namespace mlxx::capi {

// What an mlxx_model stands for.
class OpenModel {
 public:
  OpenModel(generate::Pipeline pipeline, uint64_t file_bytes);

  const generate::Pipeline& pipeline() const {
    return *pipeline_;
  }
  const mlxx_model_info& info() const {
    return info_;
  }

 private:
  MlxOwned<generate::Pipeline> pipeline_;
  mlxx_model_info info_;
};

// Handles are per process, as the ABI that hands them out is.
HandleTable<mlxx_model, OpenModel>& open_models();
HandleTable<mlxx_cancel, std::stop_source>& open_cancels();
HandleTable<mlxx_embedder, MlxOwned<embed::EmbeddingModel>>& open_embedders();
HandleTable<mlxx_reranker, MlxOwned<embed::Reranker>>& open_rerankers();

}  // namespace mlxx::capi
