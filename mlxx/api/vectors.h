#pragma once

#include <string>
#include <vector>

#include "mlxx/api/answer.h"
#include "mlxx/engine/vectors.h"

// Bodies of /v1/embeddings and /v1/rerank, and their answers.
namespace mlxx::api {

struct EmbeddingCall {
  engine::EmbedRequest request;
  bool base64 = false;
  bool truncate = false;  // else an input that was cut is an error
  std::vector<std::string> ignored;
};
EmbeddingCall read_embedding(
    const OrderedJson& body,
    const Context& context,
    const engine::VectorLimits& limits = {});
// 400 with code context_length_exceeded if an input was cut against the will.
std::string embedding_body(
    const EmbeddingCall& call,
    const engine::EmbedAnswer& answer);

struct RerankCall {
  engine::RerankRequest request;
  size_t top_n = 0;
  bool return_documents = false;
  bool truncate = false;
  // As they came, if they are to be returned and were cut off.
  std::vector<std::string> whole_documents;
  std::string id;
  std::vector<std::string> ignored;
};
RerankCall read_rerank(
    const OrderedJson& body,
    const Context& context,
    const engine::VectorLimits& limits = {});
// Best first; equal scores in the order of the documents.
std::string rerank_body(
    const RerankCall& call,
    const engine::RerankAnswer& answer);

// Little-endian 32-bit floats in base64 (RFC 4648, padded).
std::string base64_floats(const std::vector<float>& values);

}  // namespace mlxx::api
