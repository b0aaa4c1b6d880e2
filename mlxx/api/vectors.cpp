#include "mlxx/api/vectors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include <nlohmann/json.hpp>

#include "mlxx/api/field_reader.h"
#include "mlxx/api/generation_fields.h"
#include "mlxx/api/json_writer.h"
#include "mlxx/api/prompt_inputs.h"
#include "mlxx/base/utf8.h"

namespace mlxx::api {

namespace {

constexpr int kMaxDimensions = 65536;

void refuse_cut(
    const std::vector<int>& dropped,
    const char* field,
    bool truncate) {
  for (size_t i = 0; !truncate && i < dropped.size(); ++i) {
    if (dropped[i] > 0) {
      const std::string path = fmt::format("{}[{}]", field, i);
      throw RequestError(
          400,
          fmt::format(
              "[{}] is {} tokens too long for the model (\"truncate\": true "
              "cuts it)",
              path,
              dropped[i]),
          path,
          "context_length_exceeded");
    }
  }
}

std::string bytes_of(const std::vector<float>& values) {
  std::string out;
  out.reserve(values.size() * 4);
  for (float value : values) {
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) {
      out += static_cast<char>((bits >> shift) & 0xff);
    }
  }
  return out;
}

// Models read only the beginning of a text that is too long, and its tokens are
// found on a thread that others wait for.
void limit_length(
    std::string& text,
    const Context& context,
    bool truncate,
    const std::string& field) {
  const size_t bytes = beginning_of_text(text, *context.model).size();
  if (bytes < text.size() && !truncate) {
    throw RequestError(
        400,
        fmt::format(
            "[{}] has more than the {} tokens that {} reads (\"truncate\": "
            "true "
            "cuts it)",
            field,
            context.model->context_length,
            context.model->name),
        field,
        "context_length_exceeded");
  }
  text.resize(bytes);
}

void limit_lengths(
    std::vector<std::string>& texts,
    const Context& context,
    bool truncate,
    const char* field) {
  for (size_t i = 0; i < texts.size(); ++i) {
    limit_length(texts[i], context, truncate, fmt::format("{}[{}]", field, i));
  }
}

std::string document_text(const FieldReader& fields, const OrderedJson& item) {
  const OrderedJson* text = &item;
  if (item.is_object()) {
    const auto found = item.find("text");
    text = found == item.end() ? nullptr : &*found;
  }
  if (!text || !text->is_string()) {
    fields.refuse(
        "documents",
        "must be a list of strings or of objects with a \"text\"",
        "invalid_type");
  }
  auto out = text->get<std::string>();
  if (out.empty() || !is_valid_utf8(out)) {
    fields.refuse(
        "documents",
        out.empty() ? "must not hold an empty text" : "are not valid UTF-8",
        "invalid_value");
  }
  return out;
}

}  // namespace

std::string base64_floats(const std::vector<float>& values) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::string bytes = bytes_of(values);
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) {
      group = (group << 8) |
          (j < count ? static_cast<uint8_t>(bytes[i + j]) : uint32_t{0});
    }
    for (size_t j = 0; j < 4; ++j) {
      out += j <= count ? kLetters[(group >> (18 - 6 * j)) & 63] : '=';
    }
  }
  return out;
}

EmbeddingCall read_embedding(
    const OrderedJson& body,
    const Context& context,
    const engine::VectorLimits& limits) {
  EmbeddingCall out;
  const FieldReader fields(
      body,
      embedding_fields(),
      context.limits.strict,
      out.ignored);
  fields.string("model", 1024);
  out.request.model = context.model->name;
  for (PromptInput& input : read_prompt_inputs(
           fields,
           "input",
           limits.max_inputs,
           context.model->vocab_size)) {
    if (input.is_tokens) {
      out.request.token_lists.push_back(std::move(input.tokens));
    } else {
      out.request.texts.push_back(std::move(input.text));
    }
  }
  out.base64 = fields.word("encoding_format", {"float", "base64"}) == "base64";
  out.request.dimensions = static_cast<int>(
      fields.integer("dimensions", 1, kMaxDimensions).value_or(0));
  out.truncate = fields.boolean("truncate").value_or(false);
  limit_lengths(out.request.texts, context, out.truncate, "input");
  return out;
}

std::string embedding_body(
    const EmbeddingCall& call,
    const engine::EmbedAnswer& answer) {
  refuse_cut(answer.dropped, "input", call.truncate);
  OrderedJson data = OrderedJson::array();
  for (size_t i = 0; i < answer.vectors.size(); ++i) {
    const std::vector<float>& vector = answer.vectors[i];
    OrderedJson one = {{"object", "embedding"}, {"index", i}};
    if (call.base64) {
      one["embedding"] = base64_floats(vector);
    } else {
      one["embedding"] = vector;
    }
    data.push_back(std::move(one));
  }
  OrderedJson out = {{"object", "list"}};
  out["data"] = std::move(data);
  out["model"] = call.request.model;
  out["usage"] = {
      {"prompt_tokens", answer.tokens},
      {"total_tokens", answer.tokens}};
  return write_json(out);
}

RerankCall read_rerank(
    const OrderedJson& body,
    const Context& context,
    const engine::VectorLimits& limits) {
  RerankCall out;
  const FieldReader fields(
      body,
      rerank_fields(),
      context.limits.strict,
      out.ignored);
  fields.string("model", 1024);
  out.request.model = context.model->name;
  out.request.query = fields.required_string("query");
  if (out.request.query.empty()) {
    fields.refuse("query", "must not be empty", "invalid_value");
  }
  const OrderedJson* documents = fields.list("documents", limits.max_inputs);
  if (!documents) {
    fields.missing("documents");
  }
  if (documents->empty()) {
    fields.refuse("documents", "must not be empty", "invalid_value");
  }
  for (const OrderedJson& item : *documents) {
    out.request.documents.push_back(document_text(fields, item));
  }
  out.top_n = static_cast<size_t>(
      fields.integer("top_n", 1, INT32_MAX)
          .value_or(static_cast<int64_t>(documents->size())));
  out.return_documents = fields.boolean("return_documents").value_or(false);
  out.truncate = fields.boolean("truncate").value_or(false);
  limit_length(out.request.query, context, out.truncate, "query");
  if (out.return_documents && out.truncate) {
    out.whole_documents = out.request.documents;
  }
  limit_lengths(out.request.documents, context, out.truncate, "documents");
  out.id = context.make_id("rerank-");
  return out;
}

std::string rerank_body(
    const RerankCall& call,
    const engine::RerankAnswer& answer) {
  refuse_cut(answer.dropped, "documents", call.truncate);
  std::vector<size_t> order(answer.scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return answer.scores[a] > answer.scores[b];
  });
  order.resize(std::min(order.size(), call.top_n));
  OrderedJson results = OrderedJson::array();
  for (size_t index : order) {
    OrderedJson one = {
        {"index", index},
        {"relevance_score", answer.scores[index]}};
    if (call.return_documents) {
      const auto& documents = call.whole_documents.empty()
          ? call.request.documents
          : call.whole_documents;
      one["document"] = {{"text", documents[index]}};
    }
    results.push_back(std::move(one));
  }
  OrderedJson out = {{"id", call.id}, {"object", "list"}};
  out["model"] = call.request.model;
  out["results"] = std::move(results);
  out["usage"] = {
      {"prompt_tokens", answer.tokens},
      {"total_tokens", answer.tokens}};
  return write_json(out);
}

}  // namespace mlxx::api
