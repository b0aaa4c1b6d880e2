#include <chrono>

#include <nlohmann/json.hpp>

#include "mlxx/server/routes.h"
#include "mlxx/server/source_report.h"

namespace mlxx::server {

namespace {

// With when to ask again where the answer is not what was hoped for.
HttpResponse status_response(std::string body, bool is_good) {
  auto response = json_response(std::move(body), is_good ? 200 : 503);
  if (!is_good) {
    response.headers.push_back({"Retry-After", "2"});
  }
  return response;
}

HttpResponse health(const Services& services) {
  auto state = services.engine->state();
  // The bodies of mlx_lm.server, and why.
  OrderedJson body;
  body["status"] = state.healthy ? "ok" : "unavailable";
  if (!state.healthy) {
    body["problem"] = state.problem;
  }
  if (state.restarts > 0) {
    body["engine_restarts"] = state.restarts;
  }
  return status_response(
      body.size() == 1 ? R"({"status": "ok"})" : body.dump(),
      state.healthy);
}

HttpResponse ready(const Services& services) {
  auto state = services.engine->state();
  OrderedJson body;
  bool is_ready = state.ready && state.healthy;
  body["status"] = is_ready ? "ready"
      : state.healthy       ? "loading"
                            : "unavailable";
  if (!state.healthy) {
    body["problem"] = state.problem;
  }
  return status_response(body.dump(), is_ready);
}

std::string first_model(const Services& services) {
  auto models = services.texts->list();
  return models.empty() ? "" : models.front().name;
}

HttpResponse metrics(const Services& services) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  auto stats = services.engine->stats();
  auto state = services.engine->state();
  stats.healthy = state.healthy;
  response.body = services.metrics.text(
      stats,
      first_model(services),
      services.connections(),
      state.restarts);
  return response;
}

HttpResponse stats(const Services& services) {
  auto stats = services.engine->stats();
  auto state = services.engine->state();
  OrderedJson engine = {
      {"waiting", stats.waiting},
      {"prefilling", stats.prefilling},
      {"decoding", stats.decoding},
      {"finished", stats.finished},
      {"failed", stats.failed},
      {"cancelled", stats.cancelled},
      {"refused", stats.refused},
      {"prompt_tokens", stats.prompt_tokens},
      {"cached_tokens", stats.cached_tokens},
      {"generated_tokens", stats.generated_tokens},
      {"steps", stats.steps},
      {"step_seconds", stats.step_seconds},
      {"prefill_seconds", stats.prefill_seconds},
      {"ready", state.ready},
      {"healthy", state.healthy},
      {"problem", state.problem},
      {"restarts", state.restarts}};
  OrderedJson models = OrderedJson::array();
  for (const auto& model : services.texts->list()) {
    models.push_back({{"id", model.name}, {"loaded", model.loaded}});
  }
  OrderedJson body;
  body["uptime_seconds"] =
      std::chrono::duration<double>(
          std::chrono::steady_clock::now() - services.started)
          .count();
  body["connections"] = services.connections();
  body["engine"] = std::move(engine);
  body["memory"] = memory_report(stats.source);
  body["prefix_cache"] = prefix_cache_report(stats.source);
  body["models"] = std::move(models);
  return json_response(
      body.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

}  // namespace

void add_status_routes(Router& router, Services& services) {
  auto add = [&](const char* path, auto make, bool open) {
    Route route;
    route.method = "GET";
    route.pattern = path;
    route.handler = [&services,
                     make](const HttpRequest&, const PathParts&) -> Reply {
      return make(services);
    };
    route.immediate = true;
    route.open = open;
    route.status = true;
    router.add(std::move(route));
  };
  add("/health", health, true);
  add("/ready", ready, true);
  add("/metrics", metrics, false);
  add("/stats", stats, false);
}

}  // namespace mlxx::server
