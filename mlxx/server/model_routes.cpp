#include <nlohmann/json.hpp>

#include "mlxx/server/routes.h"

namespace mlxx::server {

namespace {

OrderedJson describe(const engine::ListedModel& model) {
  return {
      {"id", model.name},
      {"object", "model"},
      {"created", model.created},
      {"owned_by", "mlxx"}};
}

// What OpenAI's and Anthropic's clients both read.
Reply list_models(const Services& services) {
  OrderedJson data = OrderedJson::array();
  for (const auto& model : services.texts->list()) {
    data.push_back(describe(model));
  }
  OrderedJson body;
  body["object"] = "list";
  body["data"] = std::move(data);
  return json_response(
      body.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

Reply one_model(const Services& services, const std::string& name) {
  for (const auto& model : services.texts->list()) {
    if (model.name == name) {
      return json_response(describe(model).dump(
          -1,
          ' ',
          false,
          OrderedJson::error_handler_t::replace));
    }
  }
  throw api::RequestError(
      404,
      "[model] no model of that name is served",
      "model",
      "model_not_found");
}

}  // namespace

void add_model_routes(Router& router, Services& services) {
  Route list;
  list.method = "GET";
  list.pattern = "/v1/models";
  list.handler = [&services](const HttpRequest&, const PathParts&) {
    return list_models(services);
  };
  router.add(std::move(list));
  Route one;
  one.method = "GET";
  one.pattern = "/v1/models/{*}";
  one.handler = [&services](const HttpRequest&, const PathParts& parts) {
    return one_model(services, parts[0]);
  };
  router.add(std::move(one));
}

}  // namespace mlxx::server
