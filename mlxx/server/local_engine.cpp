#include <future>
#include <mutex>

#include "mlxx/base/error.h"
#include "mlxx/server/engine_port.h"

namespace mlxx::server {

namespace {

AdapterAnswer do_command(
    engine::ModelSource& source,
    const AdapterCommand& command) {
  auto* adapters = source.adapters();
  if (!adapters) {
    fail(ErrorKind::unsupported, "adapters", "these models take no adapters");
  }
  AdapterAnswer answer;
  switch (command.action) {
    case AdapterCommand::Action::list:
      answer.entries = adapters->list_adapters();
      break;
    case AdapterCommand::Action::mount:
      answer.entries.push_back(
          adapters->mount_adapter(command.model, command.name, command.folder));
      break;
    case AdapterCommand::Action::unmount:
      adapters->unmount_adapter(command.model, command.name);
      break;
  }
  return answer;
}

class LocalEngine : public EnginePort {
 public:
  LocalEngine(
      const engine::EngineOptions& options,
      std::function<std::unique_ptr<engine::ModelSource>()> make_source,
      const std::vector<std::string>& models)
      : engine_(options, std::move(make_source)) {
    engine_.post([this, models](engine::ModelSource& source) {
      std::string problem;
      for (size_t i = 0; i < models.size() && problem.empty(); ++i) {
        try {
          if (i == 0) {
            source.load_first(models[i]);
          } else {
            source.check(models[i]);
          }
        } catch (const std::exception& error) {
          problem = models.size() == 1
              ? error.what()
              : fmt::format("[{}] {}", models[i], error.what());
        }
      }
      std::lock_guard lock(mutex_);
      state_.ready = problem.empty();
      state_.problem = problem;
      state_.is_final = !problem.empty();
    });
  }

  engine::RequestId submit(engine::Request request, engine::Sink sink)
      override {
    return engine_.submit(std::move(request), std::move(sink));
  }

  void cancel(engine::RequestId id) override {
    engine_.cancel(id);
  }

  void embed(engine::EmbedRequest request, engine::EmbedSink sink) override {
    engine::embed(engine_, std::move(request), std::move(sink));
  }

  void rerank(engine::RerankRequest request, engine::RerankSink sink) override {
    engine::rerank(engine_, std::move(request), std::move(sink));
  }

  void adapters(AdapterCommand command, AdapterSink sink) override {
    engine_.post([command = std::move(command),
                  sink = std::move(sink)](engine::ModelSource& source) {
      AdapterAnswer answer;
      std::exception_ptr problem;
      try {
        answer = do_command(source, command);
      } catch (const std::exception&) {
        problem = std::current_exception();
      }
      sink(std::move(answer), problem);
    });
  }

  engine::EngineStats stats() const override {
    return engine_.stats();
  }

  EngineState state() const override {
    auto stats = engine_.stats();
    std::lock_guard lock(mutex_);
    EngineState state = state_;
    if (!stats.healthy) {
      state.problem = stats.problem;
    }
    state.healthy = state.problem.empty();
    return state;
  }

  void clear_prefixes() override {
    auto done = std::make_shared<std::promise<void>>();
    auto future = done->get_future();
    engine_.post([done](engine::ModelSource& source) {
      try {
        source.clear_prefixes();
        done->set_value();
      } catch (...) {
        done->set_exception(std::current_exception());
      }
    });
    try {
      future.get();
    } catch (const std::future_error&) {
      // It went without having run.
      fail(ErrorKind::internal, "engine", "it is stopping");
    }
  }

  void drain(std::chrono::milliseconds patience) override {
    engine_.drain(patience);
  }

 private:
  mutable std::mutex mutex_;
  EngineState state_;
  // Last: its thread uses the others.
  engine::Engine engine_;
};

}  // namespace

std::shared_ptr<EnginePort> make_local_engine(
    const engine::EngineOptions& options,
    std::function<std::unique_ptr<engine::ModelSource>()> make_source,
    const std::vector<std::string>& models) {
  return std::make_shared<LocalEngine>(options, std::move(make_source), models);
}

}  // namespace mlxx::server
