#include "mlxx/capi/models.h"

#include <string>
#include <utility>

#include "mlxx/base/error.h"
#include "mlxx/base/utf8.h"
#include "mlxx/capi/argument_checks.h"
#include "mlxx/capi/guarded.h"
#include "mlxx/capi/handles.h"
#include "mlxx/capi/mlx_thread.h"
#include "mlxx/capi/sized_struct.h"
#include "mlxx/hub/resolve.h"

namespace mlxx::capi {

namespace {

template <size_t N>
void copy_name(const std::string& name, char (&out)[N]) {
  copy_message(name, {.text = out, .capacity = N});
}

}  // namespace

OpenModel::OpenModel(generate::Pipeline pipeline, uint64_t file_bytes)
    : pipeline_(
          std::make_shared<const generate::Pipeline>(std::move(pipeline))),
      info_{} {
  const auto summary = pipeline_->model->summary();
  info_.size = sizeof info_;
  info_.parameters = summary.parameters;
  info_.weight_bytes = summary.weight_bytes;
  info_.file_bytes = file_bytes;
  info_.context_length = pipeline_->context_length;
  info_.vocab_size = summary.vocab_size;
  info_.tokenizer_size = pipeline_->tokenizer->vocab_size();
  info_.layers = summary.layers;
  info_.hidden_size = summary.hidden_size;
  info_.bos_token = pipeline_->bos_id.value_or(-1);
  info_.has_chat_template = pipeline_->chat_template != nullptr;
  copy_name(summary.model_type, info_.architecture);
  copy_name(pipeline_->checkpoint->format(), info_.format);
}

namespace {

// One table for each kind of handle; their numbers never meet.
constexpr uintptr_t kKindsOfHandles = 4;

template <typename Table>
Table& table_of(const char* name, uintptr_t first) {
  static auto* table =
      std::make_unique<Table>(name, first, kKindsOfHandles).release();
  return *table;
}

}  // namespace

HandleTable<mlxx_model, OpenModel>& open_models() {
  return table_of<HandleTable<mlxx_model, OpenModel>>("model", 1);
}

HandleTable<mlxx_cancel, std::stop_source>& open_cancels() {
  return table_of<HandleTable<mlxx_cancel, std::stop_source>>("cancel", 2);
}

HandleTable<mlxx_embedder, MlxOwned<embed::EmbeddingModel>>& open_embedders() {
  return table_of<HandleTable<mlxx_embedder, MlxOwned<embed::EmbeddingModel>>>(
      "embedder",
      3);
}

HandleTable<mlxx_reranker, MlxOwned<embed::Reranker>>& open_rerankers() {
  return table_of<HandleTable<mlxx_reranker, MlxOwned<embed::Reranker>>>(
      "reranker",
      4);
}

mlxx_status model_open(
    const char* name,
    const mlxx_model_options* options,
    mlxx_model** out,
    ErrorText error) {
  return guarded(error, [&] {
    constexpr const char* kPlace = "mlxx_model_open";
    require_pointer(out, kPlace, "out");
    *out = nullptr;
    require_pointer(name, kPlace, "model");
    require_outside_callback(kPlace);
    const auto given = read_struct<mlxx_model_options>(
        options,
        MLXX_MODEL_OPTIONS_INIT,
        "mlxx_model_options");
    require_zero(given.reserved, "mlxx_model_options");
    generate::PipelineOptions wanted;
    wanted.context_length = given.context_length;
    wanted.tokenizer_cache = text::TokenizerCache::from_environment();
    if (given.chat_template) {
      require_utf8(given.chat_template, "chat_template");
      wanted.chat_template = given.chat_template;
    }
    std::shared_ptr<OpenModel> model;
    run_on_mlx_thread([&] {
      auto checkpoint = hub::open_checkpoint(hub::resolve_model(name));
      const uint64_t file_bytes = checkpoint->file_bytes();
      model = std::make_shared<OpenModel>(
          generate::load_pipeline(std::move(checkpoint), wanted),
          file_bytes);
    });
    *out = open_models().add(std::move(model));
    return MLXX_OK;
  });
}

mlxx_status model_close(mlxx_model* model, ErrorText error) {
  return guarded(error, [&] {
    if (model) {
      open_models().remove(model, "mlxx_model_close");
    }
    return MLXX_OK;
  });
}

mlxx_status
model_get_info(mlxx_model* model, mlxx_model_info* info, ErrorText error) {
  return guarded(error, [&] {
    constexpr const char* kPlace = "mlxx_model_get_info";
    require_pointer(info, kPlace, "info");
    check_struct_size(info->size, "mlxx_model_info", sizeof(mlxx_model_info));
    write_struct(info, open_models().get(model, kPlace)->info());
    return MLXX_OK;
  });
}

}  // namespace mlxx::capi
