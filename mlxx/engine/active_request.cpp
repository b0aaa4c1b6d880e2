#include "mlxx/engine/active_request.h"

#include <algorithm>
#include <utility>

#include "mlxx/base/error.h"

namespace mlxx::engine {

RowSettings ActiveRequest::settings(int choice) const {
  return {
      request.sampling,
      choice_seed(seed, choice),
      request.top_logprobs,
      request.adapter};
}

bool ActiveRequest::finished() const {
  return std::all_of(choices.begin(), choices.end(), [](const auto& choice) {
    return choice->answer.finished();
  });
}

void ActiveRequest::send(Sequence& sequence, Event event, double now) {
  if (event.finish) {
    Usage& usage = sequence.answer.usage;
    bool decoded = stage == Stage::decoding;
    usage.queue_seconds = admitted - submitted;
    usage.prefill_seconds = (decoded ? started : now) - admitted;
    usage.decode_seconds = decoded ? now - started : 0;
    event.finish->usage = usage;
    had_error = had_error || event.finish->reason == FinishReason::error;
    was_cancelled =
        was_cancelled || event.finish->reason == FinishReason::cancelled;
  }
  if (sink_failed ||
      (event.text.empty() && event.tokens.empty() && event.prompt.empty() &&
       !event.finish)) {
    return;
  }
  try {
    sink(std::move(event));
  } catch (...) {
    sink_failed = true;
  }
}

void ActiveRequest::finish_all(
    FinishReason reason,
    std::shared_ptr<const Error> error,
    double now) {
  for (auto& choice : choices) {
    if (!choice->answer.finished()) {
      send(*choice, choice->answer.finish(reason, error), now);
    }
  }
}

std::shared_ptr<const Error> current_error(std::string_view place) {
  try {
    throw;
  } catch (const Error& error) {
    return std::make_shared<Error>(error);
  } catch (const std::bad_alloc&) {
    return std::make_shared<Error>(
        ErrorKind::out_of_memory,
        fmt::format("[{}] out of memory", place));
  } catch (const std::exception& error) {
    return std::make_shared<Error>(
        ErrorKind::internal,
        fmt::format("[{}] {}", place, error.what()));
  } catch (...) {
    return std::make_shared<Error>(
        ErrorKind::internal,
        fmt::format("[{}] an unknown exception", place));
  }
}

}  // namespace mlxx::engine
