#include <utility>

#include "mlxx/api/model_list.h"
#include "mlxx/server/routes.h"

namespace mlxx::server {

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
}

}  // namespace mlxx::server
