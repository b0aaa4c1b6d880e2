#include "mlxx/api/fields.h"
#include "mlxx/api/sampling_fields.h"

// Tables of the endpoints that generate nothing.
namespace mlxx::api {

namespace {

constexpr auto kHonoured = FieldStatus::honoured;
constexpr auto kHint = FieldStatus::hint;
constexpr auto kRefused = FieldStatus::refused;

constexpr auto kModel = std::to_array<Field>({
    {"model",
     kHonoured,
     "\"tiny\"",
     "A name of `GET /v1/models`, or `default_model`. Absent: the first.",
     "5"},
    {"user", kHint, "\"u\"", ""},
});

constexpr auto kEmbedding = std::to_array<Field>({
    {"input",
     kHonoured,
     "\"hi\"",
     "A string, a list of strings, a list of token ids, or a list of such "
     "lists.",
     "[]"},
    {"encoding_format",
     kHonoured,
     "\"base64\"",
     "float, or base64 of little-endian 32-bit floats.",
     "\"hex\""},
    {"dimensions",
     kHonoured,
     "2",
     "The vector is cut to that many numbers and normalised again.",
     "0"},
    {"truncate",
     kHonoured,
     "true",
     "Inputs that are too long are cut; without it they are 400. An "
     "extension.",
     "1"},
    {"truncate_prompt_tokens", kRefused, "5", "is not supported: use truncate"},
    {"normalize", kRefused, "false", "is not supported: vectors have length 1"},
    {"input_type",
     kRefused,
     "\"query\"",
     "is not supported: put the model's prefix before the text"},
});

constexpr auto kRerank = std::to_array<Field>({
    {"query", kHonoured, "\"hi\"", "", "5"},
    {"documents",
     kHonoured,
     R"(["a", "b"])",
     "Strings, or objects with a text.",
     "[]"},
    {"documents[].text", kHonoured, R"([{"text": "a"}])", ""},
    {"top_n", kHonoured, "1", "The best so many; all unless given.", "0"},
    {"return_documents",
     kHonoured,
     "true",
     "The texts stand in the answer too.",
     "\"x\""},
    {"truncate",
     kHonoured,
     "true",
     "Pairs that are too long are cut; without it they are 400.",
     "1"},
    {"rank_fields", kRefused, R"(["x"])", "is not supported"},
    {"max_chunks_per_doc", kRefused, "1", "is not supported"},
    {"max_tokens_per_doc", kRefused, "1", "is not supported: use truncate"},
});

constexpr auto kTokenize = std::to_array<Field>({
    {"content", kHonoured, "\"hi\"", "The text.", "5"},
    {"prompt", kHonoured, "null", "vLLM's name of content."},
    {"add_special",
     kHonoured,
     "true",
     "With the BOS, if the model has one.",
     "1"},
    {"add_special_tokens",
     kHonoured,
     "true",
     "vLLM's name of add_special.",
     "1"},
    {"parse_special",
     kHonoured,
     "false",
     "false: special tokens in the text are ordinary characters.",
     "1"},
    {"with_pieces", kHonoured, "true", "The text of each token too.", "1"},
    {"return_token_strs",
     kRefused,
     "true",
     "is not supported: use with_pieces"},
});

constexpr auto kDetokenize = std::to_array<Field>({
    {"tokens", kHonoured, "[1, 2]", "", "[-1]"},
});

constexpr auto kEmbeddingAll = joined_fields(kEmbedding, kModel);
constexpr auto kRerankAll = joined_fields(kRerank, kModel);
constexpr auto kTokenizeAll = joined_fields(kTokenize, kModel);
constexpr auto kDetokenizeAll = joined_fields(kDetokenize, kModel);

constexpr FieldTable kEmbeddingTable = {
    "POST /v1/embeddings",
    R"({"input": "hi"})",
    kEmbeddingAll};
constexpr FieldTable kRerankTable = {
    "POST /v1/rerank",
    R"({"query": "hi", "documents": ["a"]})",
    kRerankAll};
constexpr FieldTable kTokenizeTable = {
    "POST /tokenize",
    R"({"content": "hi"})",
    kTokenizeAll};
constexpr FieldTable kDetokenizeTable = {
    "POST /detokenize",
    R"({"tokens": [1]})",
    kDetokenizeAll};

}  // namespace

const FieldTable& embedding_fields() {
  return kEmbeddingTable;
}

const FieldTable& rerank_fields() {
  return kRerankTable;
}

const FieldTable& tokenize_fields() {
  return kTokenizeTable;
}

const FieldTable& detokenize_fields() {
  return kDetokenizeTable;
}

}  // namespace mlxx::api
