#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mlxx/engine/generation_defaults.h"
#include "mlxx/engine/model_text.h"
#include "mlxx/generate/text_part.h"
#include "mlxx/hub/checkpoint.h"

namespace mlxx::engine {

enum class ModelUse {
  answers,  // a language model
  vectors,  // an encoder, or a decoder that sentence-transformers wraps
  scores,   // a cross-encoder
};

// A model on disk, its weights not read.
struct ModelFiles {
  std::filesystem::path path;  // what hub::resolve_model() gave
  ModelUse use = ModelUse::answers;
  std::shared_ptr<const hub::Checkpoint> checkpoint;
  int64_t created = 0;  // Unix time
};

// When the file or folder was last written to; 0 if that cannot be told.
int64_t unix_time_of(const std::filesystem::path& path);

// On any thread. Errors: those of hub::open_checkpoint(); unsupported for a
// model_type that nothing here computes.
ModelFiles open_model_files(const std::filesystem::path& path);

struct ModelTextOptions {
  std::string name;
  SamplingFlags sampling;
  std::optional<std::string> chat_template;  // replaces the checkpoint's
  std::vector<std::string> extra_eos_tokens;
  int context_length = 0;  // replaces the config's; 0: keep
  std::optional<text::TokenizerCache> tokenizer_cache;
};

// The texts of a model: for the server's threads, and what loading the same
// model's weights goes on from (PipelineOptions::text_part).
struct OpenedText {
  std::shared_ptr<const ModelText> text;
  std::shared_ptr<const generate::TextPart> part;
};

// On any thread. bad_file; invalid_request for a chat template of the options
// that does not compile, not_found for one of their tokens.
OpenedText read_model_text(
    const ModelFiles& files,
    const ModelTextOptions& options);

}  // namespace mlxx::engine
