#include <utility>

#include "mlxx/api/model_list.h"
#include "mlxx/server/routes.h"

namespace mlxx::server {

namespace {

// Adapters cannot be mounted yet: there are none, and asking for one says so.
void add_adapter_routes(Router& router) {
  Route list;
  list.method = "GET";
  list.pattern = "/v1/adapters";
  list.handler = [](const HttpRequest&, const PathParts&) -> Reply {
    return json_response(R"({"object":"list","data":[]})");
  };
  router.add(std::move(list));
  auto add_refusal = [&](const char* method, const char* pattern) {
    Route route;
    route.method = method;
    route.pattern = pattern;
    route.handler = [](const HttpRequest&, const PathParts&) -> Reply {
      throw api::RequestError(
          501,
          "[adapters] this server cannot mount adapters",
          "",
          "unsupported");
    };
    router.add(std::move(route));
  };
  add_refusal("POST", "/v1/adapters");
  add_refusal("DELETE", "/v1/adapters/{*}");
}

}  // namespace

void add_model_routes(Router& router, Services& services) {
  Route list;
  list.method = "GET";
  list.pattern = "/v1/models";
  list.handler = [&services](const HttpRequest&, const PathParts&) -> Reply {
    return json_response(api::model_list_body(services.texts->list()));
  };
  router.add(std::move(list));
  Route one;
  one.method = "GET";
  one.pattern = "/v1/models/{*}";
  one.handler =
      [&services](const HttpRequest&, const PathParts& parts) -> Reply {
    return json_response(api::model_body(services.texts->list(), parts[0]));
  };
  router.add(std::move(one));
  add_adapter_routes(router);
}

}  // namespace mlxx::server
