#include "mlxx/capi/functions.h"

#include <exception>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/capi/delta_queue.h"
#include "mlxx/capi/mlx_thread.h"
#include "mlxx/capi/status.h"
#include "mlxx/core/mlx.h"
#include "mlxx/generate/generate.h"
#include "mlxx/hub/resolve.h"

struct mlxx_model {
  // Made and destroyed on the MLX thread.
  std::unique_ptr<mlxx::generate::Pipeline> pipeline;
};

namespace mlxx::capi {

namespace {

// Lives until the process ends: MLX's own threads do, and joining at exit would
// wait for a running answer.
MlxThread& mlx_thread() {
  static auto* thread = std::make_unique<MlxThread>().release();
  return *thread;
}

// Runs `job` on the MLX thread and rethrows here what it threw.
void run_on_mlx_thread(std::function<void()> job) {
  std::promise<void> done;
  mlx_thread().post([&] {
    try {
      job();
      done.set_value();
    } catch (...) {
      done.set_exception(std::current_exception());
    }
  });
  done.get_future().get();
}

void require(bool condition, const char* place, const char* what) {
  if (!condition) {
    fail(ErrorKind::invalid_request, place, "{}", what);
  }
}

const char* mlx_version() {
  return mx::version();
}

mlxx_status model_open(const char* name, mlxx_model** out, ErrorText error) {
  try {
    require(out != nullptr, "mlxx_model_open", "out is NULL");
    *out = nullptr;
    require(name != nullptr, "mlxx_model_open", "model is NULL");
    auto model = std::make_unique<mlxx_model>();
    std::string wanted = name;
    run_on_mlx_thread([&] {
      model->pipeline =
          std::make_unique<generate::Pipeline>(generate::load_pipeline(
              hub::open_checkpoint(hub::resolve_model(wanted))));
    });
    *out = model.release();
    return MLXX_OK;
  } catch (...) {
    return describe_current_exception(error);
  }
}

void model_close(mlxx_model* model) {
  if (!model) {
    return;
  }
  std::unique_ptr<mlxx_model> owned(model);
  try {
    run_on_mlx_thread([&] { owned->pipeline.reset(); });
  } catch (...) {
    // Nothing a caller could do about it.
  }
}

std::vector<int32_t> encode(
    const generate::Pipeline& pipeline,
    const std::string& prompt,
    const std::string* system_prompt,
    bool raw) {
  bool has_template =
      pipeline.chat_template || !pipeline.chat_template_error.empty();
  if (raw || !has_template) {
    require(
        !system_prompt,
        "system_prompt",
        "there is no chat template to put it into");
    return generate::encode_raw_prompt(pipeline, prompt);
  }
  OrderedJson messages = OrderedJson::array();
  if (system_prompt) {
    messages.push_back({{"role", "system"}, {"content", *system_prompt}});
  }
  messages.push_back({{"role", "user"}, {"content", prompt}});
  return generate::encode_chat_prompt(pipeline, messages);
}

mlxx_status generate_text(
    mlxx_model* model,
    const char* prompt,
    const mlxx_generate_options* options,
    mlxx_text_callback callback,
    void* user,
    ErrorText error) {
  try {
    constexpr const char* kPlace = "mlxx_generate";
    require(model != nullptr, kPlace, "model is NULL");
    require(prompt != nullptr, kPlace, "prompt is NULL");
    require(callback != nullptr, kPlace, "callback is NULL");
    mlxx_generate_options given = MLXX_GENERATE_OPTIONS_INIT;
    if (options) {
      require(options->size == sizeof given, kPlace, "options.size is wrong");
      given = *options;
    }
    generate::GenerateOptions wanted;
    wanted.max_tokens = given.max_tokens;
    wanted.sampling.temperature = given.temperature;
    wanted.sampling.top_p = given.top_p;
    wanted.sampling.top_k = given.top_k;
    wanted.sampling.min_p = given.min_p;
    require(given.seed >= -1, "seed", "must be -1 or more");
    if (given.seed >= 0) {
      wanted.sampling.seed = given.seed;
    }
    std::string text = prompt;
    std::unique_ptr<std::string> system_prompt;
    if (given.system_prompt) {
      system_prompt = std::make_unique<std::string>(given.system_prompt);
    }

    DeltaQueue queue;
    wanted.is_cancelled = [&] { return queue.is_cancelled(); };
    mlx_thread().post([&] {
      std::exception_ptr failure;
      try {
        const auto& pipeline = *model->pipeline;
        auto tokens =
            encode(pipeline, text, system_prompt.get(), given.raw != 0);
        generate::generate(
            pipeline,
            tokens,
            wanted,
            [&](const generate::Delta& delta) {
              return delta.text.empty() ? !queue.is_cancelled()
                                        : queue.push(delta.text);
            });
      } catch (...) {
        failure = std::current_exception();
      }
      queue.finish(std::move(failure));
    });
    bool stopped = false;
    std::exception_ptr thrown;  // by a callback written in C++
    while (auto piece = queue.pop()) {
      try {
        if (!stopped && callback(piece->c_str(), piece->size(), user) != 0) {
          stopped = true;
        }
      } catch (...) {
        thrown = std::current_exception();
        stopped = true;
      }
      if (stopped) {
        // The job still refers to this frame: go on until it has ended.
        queue.cancel();
      }
    }
    queue.join();
    if (thrown) {
      std::rethrow_exception(thrown);
    }
    if (stopped) {
      copy_message("[mlxx_generate] stopped by the callback", error);
      return MLXX_CANCELLED;
    }
    return MLXX_OK;
  } catch (...) {
    return describe_current_exception(error);
  }
}

}  // namespace

FunctionTable make_function_table() {
  return {
      .size = sizeof(FunctionTable),
      .version = MLXX_VERSION,
      .mlx_version = mlx_version,
      .model_open = model_open,
      .model_close = model_close,
      .generate = generate_text,
  };
}

}  // namespace mlxx::capi
