#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

// Vectors of texts and scores of pairs of texts, computed between the steps of
// the engine. No arrays in these interfaces.
namespace mlxx::engine {

class Engine;

struct EmbedRequest {
  std::string model = {};
  // One of the two: texts, or the token ids of texts as they are.
  std::vector<std::string> texts = {};
  std::vector<std::vector<int32_t>> token_lists = {};
  int dimensions = 0;  // only the first numbers of each vector; 0: all
  std::optional<bool> normalize = {};  // absent: as the model says
  // What goes before every text; absent both: the model's default.
  std::optional<std::string> prompt = {};
  std::optional<std::string> prompt_name = {};
  int max_tokens = 0;  // of one text, the rest is cut off; 0: the model's
  // Asked on the engine's thread before each part of the work; false: the
  // client went away, the rest is cancelled. Null: always wanted.
  std::function<bool()> is_wanted = {};
};

struct EmbedAnswer {
  std::vector<std::vector<float>> vectors;  // in the order of the texts
  int64_t tokens = 0;                       // special tokens included
  std::vector<int> dropped;                 // tokens cut off, per text
};

struct RerankRequest {
  std::string model = {};
  std::string query = {};
  std::vector<std::string> documents = {};
  bool raw_scores = false;  // without the function that the model applies
  int max_tokens = 0;       // of a pair; 0: the model's
  std::function<bool()> is_wanted = {};  // as above
};

struct RerankAnswer {
  std::vector<float> scores;  // in the order of the documents
  int64_t tokens = 0;
  std::vector<int> dropped;
};

// The models that make them. Engine's thread.
class VectorSource {
 public:
  virtual ~VectorSource() = default;
  // not_found, invalid_request for another kind of model or an option out of
  // range, out_of_memory.
  virtual EmbedAnswer embed(const EmbedRequest& request) = 0;
  virtual RerankAnswer rerank(const RerankRequest& request) = 0;
};

struct VectorLimits {
  size_t max_inputs = 2048;            // texts or documents of one request
  size_t max_bytes = size_t{8} << 20;  // of all of them together
  // Computed between two steps of the engine, so that a long list stalls
  // nobody's answer.
  size_t inputs_at_once = 16;
  size_t bytes_at_once = 16384;
};

// What came of a request, or why nothing did.
using EmbedSink = std::function<void(EmbedAnswer, std::exception_ptr)>;
using RerankSink = std::function<void(RerankAnswer, std::exception_ptr)>;

// From any thread. `sink` is called once, on the engine's thread, and must
// neither block nor throw. Throws invalid_request for a request without inputs
// or above the limits, before anything is computed. The engine must outlive
// the answer.
void embed(
    Engine& engine,
    EmbedRequest request,
    EmbedSink sink,
    const VectorLimits& limits = {});
void rerank(
    Engine& engine,
    RerankRequest request,
    RerankSink sink,
    const VectorLimits& limits = {});

// The same, waiting for the answer. Not on the engine's thread.
EmbedAnswer embed_now(
    Engine& engine,
    EmbedRequest request,
    const VectorLimits& limits = {});
RerankAnswer rerank_now(
    Engine& engine,
    RerankRequest request,
    const VectorLimits& limits = {});

}  // namespace mlxx::engine
