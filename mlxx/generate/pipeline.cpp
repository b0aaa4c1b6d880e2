#include "mlxx/generate/pipeline.h"

#include <chrono>
#include <future>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/models/load_trainable.h"

namespace mlxx::generate {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Pipeline load_pipeline(
    std::shared_ptr<const hub::Checkpoint> checkpoint,
    const PipelineOptions& options) {
  if (options.context_length < 0) {
    fail(
        ErrorKind::invalid_request,
        "context_length",
        "must be at least 0, got {}",
        options.context_length);
  }
  // Without a free thread this runs in get() below.
  auto text_part = std::async(std::launch::async | std::launch::deferred, [&] {
    if (options.text_part) {
      return *options.text_part;
    }
    return load_text_part(
        *checkpoint,
        {options.chat_template, options.tokenizer_cache});
  });

  Pipeline pipeline;
  auto start = Clock::now();
  models::LoadOptions load_options;
  load_options.kernels = options.kernels;
  load_options.progress = options.progress;
  if (options.trainable) {
    pipeline.trainable_model =
        models::load_trainable_model(*checkpoint, load_options);
    pipeline.model = pipeline.trainable_model;
  } else {
    pipeline.model = models::load_model(*checkpoint, load_options);
  }
  pipeline.weights_seconds = seconds_since(start);

  TextPart part = text_part.get();
  const auto summary = pipeline.model->summary();
  pipeline.context_length = options.context_length > 0
      ? options.context_length
      : summary.max_position_embeddings;
  if (part.tokenizer->vocab_size() > summary.vocab_size) {
    log_warning(
        "the tokenizer has {} tokens, the model only {}: prompts that use the "
        "others will be refused",
        part.tokenizer->vocab_size(),
        summary.vocab_size);
  }
  pipeline.eos_ids = eos_ids_of(
      part,
      *checkpoint,
      options.extra_eos_tokens,
      summary.vocab_size);
  pipeline.bos_id = part.bos_id;
  pipeline.eos_id = part.eos_id;
  pipeline.add_bos = part.special.add_bos;
  pipeline.tokenizer = std::move(part.tokenizer);
  pipeline.chat_template = std::move(part.chat_template);
  pipeline.chat_template_error = std::move(part.chat_template_error);
  pipeline.tool_template = std::move(part.tool_template);
  pipeline.tool_template_error = std::move(part.tool_template_error);
  pipeline.tokenizer_seconds = part.seconds;
  pipeline.checkpoint = std::move(checkpoint);
  return pipeline;
}

}  // namespace mlxx::generate
