#include "mlxx/capi/embeddings.h"

#include <functional>
#include <string>
#include <vector>

#include "mlxx/capi/argument_checks.h"
#include "mlxx/capi/caller_buffer.h"
#include "mlxx/capi/guarded.h"
#include "mlxx/capi/handles.h"
#include "mlxx/capi/sized_struct.h"
#include "mlxx/hub/resolve.h"

namespace mlxx::capi {

namespace {

// More are a count that was never set.
constexpr size_t kMaxTexts = size_t{1} << 24;

template <typename Handle, typename Object>
mlxx_status open_one(
    HandleTable<Handle, MlxOwned<Object>>& table,
    const char* name,
    Handle** out,
    const char* place) {
  require_pointer(out, place, "out");
  *out = nullptr;
  require_pointer(name, place, "model");
  require_outside_callback(place);
  std::shared_ptr<MlxOwned<Object>> object;
  run_on_mlx_thread([&] {
    object = std::make_shared<MlxOwned<Object>>(
        Object::load(hub::resolve_model(name)));
  });
  *out = table.add(std::move(object));
  return MLXX_OK;
}

std::vector<std::string>
read_texts(const char* const* texts, size_t count, const char* place) {
  if (count > kMaxTexts) {
    fail(
        ErrorKind::invalid_request,
        place,
        "{} texts, the most are {}",
        count,
        kMaxTexts);
  }
  if (count > 0) {
    require_pointer(texts, place, "the list of texts");
  }
  std::vector<std::string> read;
  for (size_t i = 0; i < count; ++i) {
    require_pointer(texts[i], place, "a text");
    read.emplace_back(texts[i]);
  }
  return read;
}

// Shared by vectors and scores: `width` floats for each of `rows`, from a
// table that `compute` makes on the MLX thread.
void fill(
    size_t rows,
    size_t width,
    float* buffer,
    size_t capacity,
    size_t* count,
    mlxx_embed_result* result,
    const char* place,
    const std::function<mx::array(int64_t&, std::vector<int>&)>& compute) {
  if (result) {
    check_struct_size(
        result->size,
        "mlxx_embed_result",
        sizeof(mlxx_embed_result));
  }
  check_buffer(buffer, capacity, count, place);
  *count = rows * width;
  if (!fits(*count, buffer, capacity, place)) {
    return;
  }
  mlxx_embed_result done = MLXX_EMBED_RESULT_INIT;
  run_on_mlx_thread([&] {
    std::vector<int> dropped;
    mx::array table = compute(done.tokens, dropped);
    for (int tokens : dropped) {
      done.dropped += tokens;
      done.texts_cut += tokens > 0 ? 1 : 0;
    }
    if (table.size() > 0) {
      std::copy_n(table.data<float>(), table.size(), buffer);
    }
  });
  if (result) {
    write_struct(result, done);
  }
}

std::optional<std::string> optional_text(const char* text, const char* name) {
  if (!text) {
    return std::nullopt;
  }
  require_utf8(text, name);
  return text;
}

template <size_t N>
void copy_name(std::string_view name, char (&out)[N]) {
  copy_message(std::string(name), {.text = out, .capacity = N});
}

}  // namespace

mlxx_status
embedder_open(const char* name, mlxx_embedder** out, ErrorText error) {
  return guarded(error, [&] {
    return open_one(open_embedders(), name, out, "mlxx_embedder_open");
  });
}

mlxx_status embedder_close(mlxx_embedder* embedder, ErrorText error) {
  return guarded(error, [&] {
    if (embedder) {
      open_embedders().remove(embedder, "mlxx_embedder_close");
    }
    return MLXX_OK;
  });
}

mlxx_status embedder_get_info(
    mlxx_embedder* embedder,
    mlxx_embedder_info* info,
    ErrorText error) {
  return guarded(error, [&] {
    constexpr const char* kPlace = "mlxx_embedder_get_info";
    require_pointer(info, kPlace, "info");
    check_struct_size(
        info->size,
        "mlxx_embedder_info",
        sizeof(mlxx_embedder_info));
    const auto opened = open_embedders().get(embedder, kPlace);
    const embed::EmbeddingModel& model = **opened;
    const auto summary = model.text().encoder().summary();
    mlxx_embedder_info filled{};
    filled.dimensions = model.dimensions();
    filled.max_tokens = model.text().max_tokens();
    filled.layers = summary.layers;
    filled.hidden_size = summary.hidden_size;
    filled.normalizes = model.normalizes();
    copy_name(summary.model_type, filled.architecture);
    copy_name(to_string(model.pooling()), filled.pooling);
    write_struct(info, filled);
    return MLXX_OK;
  });
}

mlxx_status embed_texts(
    mlxx_embedder* embedder,
    const char* const* texts,
    size_t text_count,
    const mlxx_embed_options* options,
    float* vectors,
    size_t capacity,
    size_t* count,
    mlxx_embed_result* result,
    ErrorText error) {
  return guarded(error, [&] {
    constexpr const char* kPlace = "mlxx_embed";
    const auto opened = open_embedders().get(embedder, kPlace);
    const embed::EmbeddingModel& model = **opened;
    require_outside_callback(kPlace);
    const auto given = read_struct<mlxx_embed_options>(
        options,
        MLXX_EMBED_OPTIONS_INIT,
        "mlxx_embed_options");
    require_zero(given.reserved, "mlxx_embed_options");
    embed::EmbedOptions wanted;
    wanted.prompt = optional_text(given.prompt, "prompt");
    wanted.prompt_name = optional_text(given.prompt_name, "prompt_name");
    wanted.max_tokens = given.max_tokens;
    wanted.dimensions = given.dimensions;
    if (given.normalize != -1) {
      wanted.normalize = read_flag(given.normalize, "normalize");
    }
    if (given.dimensions < 0 || given.dimensions > model.dimensions()) {
      fail(
          ErrorKind::invalid_request,
          "dimensions",
          "is {}, the model gives 1 to {}",
          given.dimensions,
          model.dimensions());
    }
    const int width =
        given.dimensions > 0 ? given.dimensions : model.dimensions();
    const auto read = read_texts(texts, text_count, kPlace);
    fill(
        read.size(),
        static_cast<size_t>(width),
        vectors,
        capacity,
        count,
        result,
        kPlace,
        [&](int64_t& tokens, std::vector<int>& dropped) {
          auto embedded = model.embed(read, wanted);
          tokens = embedded.tokens;
          dropped = std::move(embedded.dropped);
          return embedded.vectors;
        });
    return MLXX_OK;
  });
}

mlxx_status
reranker_open(const char* name, mlxx_reranker** out, ErrorText error) {
  return guarded(error, [&] {
    return open_one(open_rerankers(), name, out, "mlxx_reranker_open");
  });
}

mlxx_status reranker_close(mlxx_reranker* reranker, ErrorText error) {
  return guarded(error, [&] {
    if (reranker) {
      open_rerankers().remove(reranker, "mlxx_reranker_close");
    }
    return MLXX_OK;
  });
}

mlxx_status rerank_documents(
    mlxx_reranker* reranker,
    const char* query,
    const char* const* documents,
    size_t document_count,
    const mlxx_rerank_options* options,
    float* scores,
    size_t capacity,
    size_t* count,
    mlxx_embed_result* result,
    ErrorText error) {
  return guarded(error, [&] {
    constexpr const char* kPlace = "mlxx_rerank";
    const auto opened = open_rerankers().get(reranker, kPlace);
    const embed::Reranker& model = **opened;
    require_outside_callback(kPlace);
    require_pointer(query, kPlace, "query");
    const auto given = read_struct<mlxx_rerank_options>(
        options,
        MLXX_RERANK_OPTIONS_INIT,
        "mlxx_rerank_options");
    embed::RerankOptions wanted;
    wanted.max_tokens = given.max_tokens;
    wanted.raw_scores = read_flag(given.raw_scores, "raw_scores");
    const auto read = read_texts(documents, document_count, kPlace);
    fill(
        read.size(),
        static_cast<size_t>(model.labels()),
        scores,
        capacity,
        count,
        result,
        kPlace,
        [&](int64_t& tokens, std::vector<int>& dropped) {
          auto scored = model.score(query, read, wanted);
          tokens = scored.tokens;
          dropped = std::move(scored.dropped);
          return scored.values;
        });
    return MLXX_OK;
  });
}

}  // namespace mlxx::capi
