#include "mlxx/capi/answers.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "mlxx/capi/argument_checks.h"
#include "mlxx/capi/delta_queue.h"
#include "mlxx/capi/generate_request.h"
#include "mlxx/capi/guarded.h"
#include "mlxx/capi/handles.h"
#include "mlxx/capi/mlx_thread.h"
#include "mlxx/capi/sized_struct.h"

namespace mlxx::capi {

namespace {

constexpr const char* kPlace = "mlxx_generate";

// One call of mlxx_generate(), shared by its thread and the MLX thread: a call
// that is cancelled before its turn returns while the job still waits.
struct Call {
  // Kept alive by the calling thread, which may be the last to use it: valid
  // from queue.begin() to queue.finish().
  const OpenModel* model = nullptr;
  GenerateRequest request;
  DeltaQueue queue;
  generate::GenerateResult result;  // whole after queue.finish()
};

void compute(Call& call) {
  if (!call.queue.begin()) {
    return;
  }
  std::exception_ptr failure;
  try {
    call.request.options.is_cancelled = [&] {
      return call.queue.is_cancelled();
    };
    call.result = generate::generate(
        call.model->pipeline(),
        call.request.prompt,
        call.request.options,
        [&](const generate::Delta& delta) {
          return delta.text.empty() ? !call.queue.is_cancelled()
                                    : call.queue.push(delta.text);
        });
  } catch (...) {
    failure = std::current_exception();
  }
  call.queue.finish(std::move(failure));
}

enum class Delivery { all, stopped_by_callback, cut_off };

// Gives the pieces to the callback until it or someone else wants no more, and
// waits for the computation in any case. Rethrows what either of them threw.
Delivery deliver(Call& call, mlxx_text_callback callback, void* user) {
  Delivery delivery = Delivery::all;
  std::exception_ptr thrown;  // by a callback written in C++
  while (auto piece = call.queue.pop()) {
    if (delivery != Delivery::all) {
      continue;
    }
    if (call.queue.is_cancelled()) {
      delivery = Delivery::cut_off;
      continue;
    }
    try {
      CallbackScope scope;
      if (callback(piece->c_str(), piece->size(), user) != 0) {
        delivery = Delivery::stopped_by_callback;
      }
    } catch (...) {
      thrown = std::current_exception();
      delivery = Delivery::stopped_by_callback;
    }
    if (delivery != Delivery::all) {
      call.queue.cancel();
    }
  }
  call.queue.join();
  if (thrown) {
    std::rethrow_exception(thrown);
  }
  return delivery;
}

int32_t finish_of(generate::FinishReason reason) {
  switch (reason) {
    case generate::FinishReason::stop:
      return MLXX_FINISH_STOP;
    case generate::FinishReason::length:
      return MLXX_FINISH_LENGTH;
    case generate::FinishReason::cancelled:
      return MLXX_FINISH_CANCELLED;
  }
  return MLXX_FINISH_NONE;
}

mlxx_generate_result result_of(const Call& call, bool is_cancelled) {
  const generate::GenerateResult& result = call.result;
  mlxx_generate_result filled = MLXX_GENERATE_RESULT_INIT;
  filled.seed = result.seed;
  filled.prefill_seconds = result.prefill_seconds;
  filled.decode_seconds = result.decode_seconds;
  filled.peak_memory_bytes = result.peak_memory_bytes;
  filled.prompt_tokens = static_cast<int32_t>(call.request.prompt.size());
  filled.generated_tokens = result.generated_tokens;
  filled.finish =
      is_cancelled ? MLXX_FINISH_CANCELLED : finish_of(result.finish_reason);
  const auto& stops = call.request.options.stop;
  if (!is_cancelled && !result.stop_sequence.empty()) {
    filled.stop_index = static_cast<int32_t>(
        std::find(stops.begin(), stops.end(), result.stop_sequence) -
        stops.begin());
  }
  return filled;
}

}  // namespace

mlxx_status cancel_open(mlxx_cancel** out, ErrorText error) {
  return guarded(error, [&] {
    require_pointer(out, "mlxx_cancel_open", "out");
    *out = nullptr;
    *out = open_cancels().add(std::make_shared<std::stop_source>());
    return MLXX_OK;
  });
}

mlxx_status cancel_request(mlxx_cancel* cancel, ErrorText error) {
  return guarded(error, [&] {
    open_cancels().get(cancel, "mlxx_cancel_request")->request_stop();
    return MLXX_OK;
  });
}

mlxx_status cancel_close(mlxx_cancel* cancel, ErrorText error) {
  return guarded(error, [&] {
    if (cancel) {
      open_cancels().remove(cancel, "mlxx_cancel_close");
    }
    return MLXX_OK;
  });
}

mlxx_status generate_text(
    mlxx_model* model,
    const char* prompt,
    const mlxx_generate_options* options,
    mlxx_text_callback callback,
    void* user,
    mlxx_generate_result* result,
    ErrorText error) {
  return guarded(error, [&] {
    if (result) {
      check_struct_size(
          result->size,
          "mlxx_generate_result",
          sizeof(mlxx_generate_result));
      write_struct<mlxx_generate_result>(result, MLXX_GENERATE_RESULT_INIT);
    }
    require_outside_callback(kPlace);
    const auto opened = open_models().get(model, kPlace);
    auto call = std::make_shared<Call>();
    call->model = opened.get();
    require_pointer(
        reinterpret_cast<const void*>(callback),
        kPlace,
        "callback");
    call->request = read_request(*opened, prompt, options);

    // Cancels at once where it was requested before.
    std::stop_callback on_cancel(call->request.cancel, [&] {
      call->queue.cancel();
    });
    mlx_thread().post([call] { compute(*call); });
    const Delivery delivery = deliver(*call, callback, user);
    const bool is_cancelled = delivery != Delivery::all ||
        call->result.finish_reason == generate::FinishReason::cancelled ||
        call->result.prompt_tokens == 0;
    if (result) {
      write_struct(result, result_of(*call, is_cancelled));
    }
    if (!is_cancelled) {
      return MLXX_OK;
    }
    copy_message(
        delivery == Delivery::stopped_by_callback
            ? "[mlxx_generate] stopped by the callback"
            : "[mlxx_generate] cancelled",
        error);
    return MLXX_CANCELLED;
  });
}

}  // namespace mlxx::capi
