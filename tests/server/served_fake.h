#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "mlxx/api/response_store.h"
#include "mlxx/server/api_server.h"
#include "mlxx/server/http_server.h"
#include "tests/engine/fake_runner.h"

namespace mlxx::server {

class FakeTexts : public engine::ModelTexts {
 public:
  explicit FakeTexts(std::shared_ptr<const engine::ModelText> text)
      : text_(std::move(text)) {}
  std::vector<engine::ListedModel> list() const override {
    return {{text_->name, 1'700'000'000, true}};
  }
  std::shared_ptr<const engine::ModelText> text(
      const std::string& name) override {
    if (!name.empty() && name != text_->name) {
      fail(ErrorKind::not_found, "model", "no such model is served");
    }
    return text_;
  }

 private:
  std::shared_ptr<const engine::ModelText> text_;
};

// All of the server over an engine whose model says what it was told; without
// more it repeats the prompt.
struct ServedFake {
  HttpOptions http;
  AccessOptions access;
  engine::EngineOptions engine_options;
  std::vector<std::string> logged;  // method, path and status of requests
  std::mutex logged_mutex;

  std::shared_ptr<engine::FakeRunner> runner =
      std::make_shared<engine::FakeRunner>("fake");
  std::shared_ptr<Services> services = std::make_shared<Services>();
  std::unique_ptr<ApiServer> api;
  std::unique_ptr<HttpServer> server;
  std::atomic<HttpServer*> serving{nullptr};

  ServedFake() {
    http.port = 0;
    http.limits.linger_timeout = std::chrono::milliseconds(300);
    access.host = "127.0.0.1";
    runner->keeps_calls = false;
    auto text = runner->editable_text();
    text->model_type = "llama";
    const char* plain = "{% for m in messages %}{{ m.content }}{% endfor %}";
    text->chat_template = text::ChatTemplate::compile(plain, "", "");
    text->chat_template_source = plain;
  }
  ~ServedFake() {
    if (services->engine) {
      services->engine->drain(std::chrono::milliseconds(0));
    }
    server.reset();
  }

  // Another engine over the same model.
  std::shared_ptr<EnginePort> make_engine() {
    return make_local_engine(
        engine_options,
        [this] {
          auto source = std::make_unique<engine::FakeSource>();
          source->runners["fake"] = runner;
          return source;
        },
        {"fake"});
  }

  void start() {
    services->texts = std::make_shared<FakeTexts>(runner->text());
    services->store =
        std::make_shared<api::ResponseStore>(api::ResponseStoreOptions());
    if (!services->engine) {
      services->engine = make_engine();
    }
    services->connections = [this] {
      auto* open = serving.load();
      return open ? open->connections() : 0;
    };
    api = std::make_unique<ApiServer>(
        services,
        access,
        [this](const AccessRecord& record) {
          std::lock_guard lock(logged_mutex);
          logged.push_back(fmt::format(
              "{} {} {}",
              record.request.method,
              record.request.path,
              record.served.status));
        });
    server = std::make_unique<HttpServer>(http, *api);
    serving = server.get();
  }
};

}  // namespace mlxx::server
