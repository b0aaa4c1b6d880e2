#include "mlxx/server/routes.h"

namespace mlxx::server {

// The path is vLLM's.
void add_cache_routes(Router& router, Services& services) {
  Route route;
  route.method = "POST";
  route.pattern = "/reset_prefix_cache";
  route.handler = [&services](const HttpRequest&, const PathParts&) -> Reply {
    services.engine->clear_prefixes();
    return json_response(R"({"status": "ok"})");
  };
  router.add(std::move(route));
}

}  // namespace mlxx::server
