#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mlxx/embed/text_encoder.h"

namespace mlxx::embed {

struct RerankOptions {
  int max_tokens = 0;  // of a pair with its special tokens; 0: the model's
  // The head's numbers as they are, whatever the model's config applies.
  bool raw_scores = false;
};

struct Scores {
  mx::array values;          // [N, labels] float32, evaluated
  int64_t tokens = 0;        // of all pairs, special tokens included
  std::vector<int> dropped;  // tokens cut off, per pair
};

// A cross-encoder: reads a query and a document together and says how well
// they go together. Nogueira and Cho 2019 (arXiv:1901.04085). Immutable; all
// calls from the thread that owns MLX.
class Reranker {
 public:
  // `folder` in Hugging Face's layout, of a model with a classification head.
  // Errors as models::load_model() gives them; unsupported for a function
  // over the scores that is not known.
  static std::shared_ptr<const Reranker> load(
      const std::filesystem::path& folder,
      const models::LoadOptions& options = {});

  // Scores of each document for the query. They do not depend on the other
  // documents. Of a pair that is too long the longer text is cut off, which
  // is logged and stands in `dropped`.
  Scores score(
      const std::string& query,
      std::span<const std::string> documents,
      const RerankOptions& options = {}) const;

  const TextEncoder& text() const {
    return text_;
  }
  int labels() const {
    return text_.encoder().summary().labels;
  }
  // Names of the labels as the config has them; empty if it has none.
  const std::vector<std::string>& label_names() const {
    return label_names_;
  }
  // Whether scores are numbers from 0 to 1 by default.
  bool applies_sigmoid() const {
    return sigmoid_;
  }

 private:
  Reranker(TextEncoder text, bool sigmoid);

  TextEncoder text_;
  bool sigmoid_;
  std::vector<std::string> label_names_;
};

}  // namespace mlxx::embed
