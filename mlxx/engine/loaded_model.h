#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "mlxx/embed/embedding_model.h"
#include "mlxx/embed/reranker.h"
#include "mlxx/engine/model_list.h"
#include "mlxx/engine/model_runner.h"
#include "mlxx/engine/vectors.h"
#include "mlxx/plan/memory_plan.h"

namespace mlxx::engine {

// A model of a pool with its weights; one of the three is there.
struct LoadedModel {
  std::string name;
  size_t weight_bytes = 0;
  std::chrono::steady_clock::time_point last_used;
  std::shared_ptr<ModelRunner> runner;
  std::shared_ptr<const embed::EmbeddingModel> embedding;
  std::shared_ptr<const embed::Reranker> reranker;
  std::unique_ptr<plan::ModelMemory> memory;  // of the runner
};

// Bytes, from what the files say of themselves. Errors as loading gives them.
size_t predicted_weights(
    const ModelList::Opened& opened,
    const kernels::Selection& kernels);

// Loads the weights. Errors: those of models::load_model().
std::unique_ptr<LoadedModel> load_model_of(
    const ModelList::Opened& opened,
    const kernels::Selection& kernels,
    PrefixCache* prefixes);

// Has the states of the model's prompts kept across restarts.
void keep_states_on_disk(
    const LoadedModel& model,
    const ModelList::Opened& opened,
    PrefixCache& prefixes);

// What a request's rows take at most, in bytes.
struct RowsNeed {
  size_t state = 0;
  size_t logits = 0;     // of one token of each
  size_t transient = 0;  // while a chunk of the prompt is computed

  size_t kept() const {
    return state + logits;
  }
};

RowsNeed rows_need(
    const plan::ModelMemory& memory,
    const Request& request,
    int prefill_step);

// What vectors or scores of `text_bytes` of text take while they are computed.
size_t vectors_need(const LoadedModel& model, size_t text_bytes);
size_t bytes_of(const EmbedRequest& request);
size_t bytes_of(const RerankRequest& request);

// invalid_request if the model is of another kind; else as EmbeddingModel and
// Reranker give errors, and for a model whose head gives several scores.
EmbedAnswer embed_with(const LoadedModel& model, const EmbedRequest& request);
RerankAnswer rerank_with(
    const LoadedModel& model,
    const RerankRequest& request);

}  // namespace mlxx::engine
