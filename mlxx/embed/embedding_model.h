#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mlxx/embed/sentence_modules.h"
#include "mlxx/embed/text_encoder.h"

namespace mlxx::embed {

struct EmbedOptions {
  // Scale every vector to length 1. Absent: as the model's modules say, and
  // yes if it has none.
  std::optional<bool> normalize = {};
  // Goes before every text as it is: an instruction such as "query: ". At most
  // one of the two; absent both: the model's default prompt, if it has one.
  std::optional<std::string> prompt = {};
  std::optional<std::string> prompt_name = {};  // one of the model's prompts
  // Of one text with its prompt and special tokens; 0: what the model takes.
  int max_tokens = 0;
  // Only the first numbers of each vector, scaled to length 1 again if vectors
  // are normalized: for models trained so (Kusupati et al. 2022,
  // arXiv:2205.13147). 0: all.
  int dimensions = 0;
};

struct Embeddings {
  mx::array vectors;         // [N, dimensions] float32, evaluated
  int64_t tokens = 0;        // of all texts, special tokens included
  std::vector<int> dropped;  // tokens cut off, per text
};

// A model that makes a vector of a text. Immutable; all calls from the thread
// that owns MLX.
class EmbeddingModel {
 public:
  // `folder` in Hugging Face's layout, with or without the files of
  // sentence-transformers. Without a Pooling module a text's vector is the
  // mean of its tokens' (decoders: the last token's). Errors as
  // models::load_model() and read_sentence_modules() give them.
  static std::shared_ptr<const EmbeddingModel> load(
      const std::filesystem::path& folder,
      const models::LoadOptions& options = {});

  // A text's vector does not depend on the other texts: on the CPU with our
  // kernels no bit of it. Texts too long are cut off at their end, which is
  // logged and stands in `dropped`. invalid_request: an option out of range, a
  // name of no prompt, text that is no UTF-8.
  Embeddings embed(
      std::span<const std::string> texts,
      const EmbedOptions& options = {}) const;

  // The same of token ids as they are, without a prompt and without special
  // tokens of the model. invalid_request: an id that the model has not, a list
  // that is empty or longer than it takes, an option of prompts.
  Embeddings embed_tokens(
      std::span<const std::vector<int32_t>> token_lists,
      const EmbedOptions& options = {}) const;

  const TextEncoder& text() const {
    return text_;
  }
  const SentenceModules& modules() const {
    return modules_;
  }
  Pooling pooling() const {
    return pooling_;
  }
  int dimensions() const {
    return dimensions_;
  }
  bool normalizes() const {
    return modules_.normalizes || !modules_.has_list;
  }

 private:
  class Projection;

  EmbeddingModel(SentenceModules modules, TextEncoder text);
  std::string prompt_of(const EmbedOptions& options) const;
  int width_of(const EmbedOptions& options) const;
  Embeddings vectors_of(
      TextEncoder::Encoded encoded,
      const EmbedOptions& options) const;
  mx::array reduce(const mx::array& hidden, const TokenRows& rows) const;

  SentenceModules modules_;
  TextEncoder text_;
  Pooling pooling_;
  int dimensions_ = 0;
  std::vector<std::shared_ptr<const Projection>> projections_;
};

}  // namespace mlxx::embed
