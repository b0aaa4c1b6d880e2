#include "mlxx/server/routes.h"

namespace mlxx::server {

// The path is vLLM's.
void add_cache_routes(Router& router, Services& services) {
  router.add(
      "POST",
      "/reset_prefix_cache",
      [&services](const HttpRequest&, const PathParts&) -> Reply {
        services.engine->clear_prefixes();
        return json_response(R"({"status": "ok"})");
      });
}

}  // namespace mlxx::server
