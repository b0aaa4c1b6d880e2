#include "mlxx/engine/loaded_model.h"

#include <algorithm>

#include "mlxx/base/error.h"
#include "mlxx/engine/states_identity.h"
#include "mlxx/generate/pipeline.h"
#include "mlxx/generate/warm_up.h"
#include "mlxx/models/model.h"

namespace mlxx::engine {

namespace {

models::LoadOptions load_options(const kernels::Selection& kernels) {
  models::LoadOptions options;
  options.kernels = kernels;
  return options;
}

// Tokens that are computed together (embed/text_encoder.cpp), and arrays of
// their width, or several of them, that are alive at one time.
constexpr size_t kVectorTokens = 4096;
constexpr size_t kVectorArrays = 16;

}  // namespace

size_t predicted_weights(
    const ModelList::Opened& opened,
    const kernels::Selection& kernels) {
  if (opened.files.use != ModelUse::answers) {
    return static_cast<size_t>(opened.files.checkpoint->file_bytes());
  }
  auto options = load_options(kernels);
  options.sizes_only = true;
  return plan::ModelMemory(
             models::load_model(*opened.files.checkpoint, options))
      .weights();
}

std::unique_ptr<LoadedModel> load_model_of(
    const ModelList::Opened& opened,
    const kernels::Selection& kernels,
    PrefixCache* prefixes) {
  auto loaded = std::make_unique<LoadedModel>();
  loaded->name = opened.name;
  switch (opened.files.use) {
    case ModelUse::answers: {
      generate::PipelineOptions options;
      options.kernels = kernels;
      options.text_part = opened.text.part;
      auto pipeline = generate::load_pipeline(opened.files.checkpoint, options);
      generate::warm_up(*pipeline.model, kernels);
      loaded->memory = std::make_unique<plan::ModelMemory>(pipeline.model);
      loaded->runner = std::make_shared<ModelRunner>(
          pipeline.model,
          opened.text.text,
          ModelRunnerOptions{
              .space = opened.name,
              .prefixes = prefixes,
              .kernels = kernels});
      break;
    }
    case ModelUse::vectors:
      loaded->embedding =
          embed::EmbeddingModel::load(opened.files.path, load_options(kernels));
      break;
    case ModelUse::scores:
      loaded->reranker =
          embed::Reranker::load(opened.files.path, load_options(kernels));
      break;
  }
  return loaded;
}

void keep_states_on_disk(
    const LoadedModel& model,
    const ModelList::Opened& opened,
    PrefixCache& prefixes) {
  if (!model.runner) {
    return;
  }
  prefixes.keep_on_disk(
      model.name,
      states_identity(opened.files.path),
      [weak = std::weak_ptr<const ModelRunner>(model.runner)] {
        auto runner = weak.lock();
        return runner ? runner->model().make_cache({}) : cache::CacheList();
      });
}

RowsNeed rows_need(
    const plan::ModelMemory& memory,
    const Request& request,
    int prefill_step) {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int total = static_cast<int>(
      std::min<int64_t>(prompt + request.max_tokens, INT32_MAX));
  const auto rows = static_cast<size_t>(std::max(request.n, 1));
  RowsNeed need;
  const size_t row = memory.state(total);
  // Choices share the blocks of their prompt, as far as they are full.
  const size_t shared = memory.shared_state(static_cast<int>(prompt) - 1);
  need.state = row + (rows - 1) * (row - std::min(row, shared));
  need.logits = memory.logits(static_cast<int>(rows));
  need.transient = memory.prefill(prefill_step, static_cast<int>(prompt));
  return need;
}

size_t vectors_need(const LoadedModel& model, size_t text_bytes) {
  size_t width = 0;
  size_t longest = 0;
  const auto look = [&](const embed::TextEncoder& text) {
    width = static_cast<size_t>(text.encoder().summary().hidden_size);
    longest = static_cast<size_t>(text.max_tokens());
  };
  if (model.embedding) {
    look(model.embedding->text());
  } else if (model.reranker) {
    look(model.reranker->text());
  }
  // A token is a byte or more, or special.
  const size_t tokens =
      std::min(text_bytes + 64, std::max(kVectorTokens, longest));
  return tokens * width * sizeof(float) * kVectorArrays;
}

size_t bytes_of(const EmbedRequest& request) {
  size_t bytes = 0;
  for (const auto& text : request.texts) {
    bytes += text.size();
  }
  for (const auto& tokens : request.token_lists) {
    bytes += tokens.size();
  }
  return bytes;
}

size_t bytes_of(const RerankRequest& request) {
  size_t bytes = 0;
  for (const auto& document : request.documents) {
    bytes += request.query.size() + document.size();
  }
  return bytes;
}

EmbedAnswer embed_with(const LoadedModel& model, const EmbedRequest& request) {
  if (!model.embedding) {
    fail(
        ErrorKind::invalid_request,
        "model",
        "\"{}\" makes no vectors of texts",
        model.name);
  }
  const embed::EmbedOptions options = {
      .normalize = request.normalize,
      .prompt = request.prompt,
      .prompt_name = request.prompt_name,
      .max_tokens = request.max_tokens,
      .dimensions = request.dimensions};
  embed::Embeddings made = request.token_lists.empty()
      ? model.embedding->embed(request.texts, options)
      : model.embedding->embed_tokens(request.token_lists, options);
  EmbedAnswer answer;
  answer.tokens = made.tokens;
  answer.dropped = std::move(made.dropped);
  const auto rows = static_cast<size_t>(made.vectors.shape(0));
  const auto width = static_cast<size_t>(made.vectors.shape(1));
  const float* from = made.vectors.data<float>();
  for (size_t row = 0; row < rows; ++row) {
    answer.vectors.emplace_back(from + row * width, from + (row + 1) * width);
  }
  return answer;
}

RerankAnswer rerank_with(
    const LoadedModel& model,
    const RerankRequest& request) {
  if (!model.reranker) {
    fail(
        ErrorKind::invalid_request,
        "model",
        "\"{}\" scores no pairs of texts",
        model.name);
  }
  if (model.reranker->labels() != 1) {
    fail(
        ErrorKind::unsupported,
        "model",
        "\"{}\" gives {} scores for each pair, not one",
        model.name,
        model.reranker->labels());
  }
  embed::Scores made = model.reranker->score(
      request.query,
      request.documents,
      {.max_tokens = request.max_tokens, .raw_scores = request.raw_scores});
  RerankAnswer answer;
  answer.tokens = made.tokens;
  answer.dropped = std::move(made.dropped);
  const float* from = made.values.data<float>();
  answer.scores.assign(from, from + made.values.size());
  return answer;
}

}  // namespace mlxx::engine
