#include "apps/mlxx/model_loading.h"

#include <chrono>

#include <fmt/format.h>

#include "apps/mlxx/console.h"
#include "mlxx/base/error.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/hub/resolve.h"

namespace mlxx::apps {

namespace {

using Clock = std::chrono::steady_clock;

// "loading 43 %" on one line of a terminal, which it clears at the end. Shown
// only once loading has taken so long that one wonders.
class LoadingLine {
 public:
  ~LoadingLine() {
    if (shown_percent_ >= 0) {
      print_error("\r\x1b[K");
    }
  }

  void update(uint64_t done, uint64_t total) {
    constexpr auto kPatience = std::chrono::seconds(1);
    if (!terminal_ || total == 0 || Clock::now() - start_ < kPatience) {
      return;
    }
    int percent = static_cast<int>(
        100.0 * static_cast<double>(done) / static_cast<double>(total));
    if (percent != shown_percent_) {
      shown_percent_ = percent;
      print_error(fmt::format("\rloading {} %", percent));
    }
  }

 private:
  bool terminal_ = is_terminal(Stream::err);
  Clock::time_point start_ = Clock::now();
  int shown_percent_ = -1;
};

}  // namespace

generate::Pipeline load_for_answers(
    const AnswerOptions& options,
    const InterruptScope& interrupt,
    Training training) {
  generate::PipelineOptions pipeline_options;
  pipeline_options.trainable = training == Training::weights;
  pipeline_options.kernels = options.kernels.selection();
  pipeline_options.kernels->trains = training != Training::none;
  auto checkpoint = hub::open_checkpoint(hub::resolve_model(options.model));
  LoadingLine line;
  pipeline_options.extra_eos_tokens = options.extra_eos_tokens;
  pipeline_options.chat_template = options.chat_template;
  pipeline_options.tokenizer_cache = text::TokenizerCache::from_environment();
  pipeline_options.progress = [&](uint64_t done, uint64_t total) {
    if (interrupt.is_interrupted()) {
      fail(ErrorKind::cancelled, "load", "interrupted");
    }
    line.update(done, total);
  };
  return generate::load_pipeline(std::move(checkpoint), pipeline_options);
}

}  // namespace mlxx::apps
