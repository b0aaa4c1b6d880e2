#include <charconv>
#include <ctime>

#include "mlxx/api/stored_responses.h"
#include "mlxx/server/routes.h"

namespace mlxx::server {

namespace {

api::ItemPage read_page(const HttpRequest& request) {
  api::ItemPage page;
  if (auto limit = query_value(request.target, "limit")) {
    auto end = limit->data() + limit->size();
    auto [stop, error] = std::from_chars(limit->data(), end, page.limit);
    if (error != std::errc() || stop != end) {
      throw api::RequestError(
          400,
          "[limit] must be a number",
          "limit",
          "invalid_value");
    }
  }
  if (auto order = query_value(request.target, "order")) {
    if (*order != "asc" && *order != "desc") {
      throw api::RequestError(
          400,
          "[order] must be asc or desc",
          "order",
          "invalid_value");
    }
    page.newest_first = *order == "desc";
  }
  page.after = query_value(request.target, "after").value_or("");
  return page;
}

}  // namespace

void add_stored_response_routes(Router& router, Services& services) {
  router.add(
      "GET",
      "/v1/responses/{}",
      [&services](const HttpRequest& request, const PathParts& parts) -> Reply {
        if (query_value(request.target, "stream") == "true") {
          throw api::RequestError(
              400,
              "[stream] is not supported: the response is complete",
              "stream",
              "unsupported_parameter");
        }
        return json_response(api::stored_response(
            services.store.get(),
            parts[0],
            std::time(nullptr)));
      });
  router.add(
      "DELETE",
      "/v1/responses/{}",
      [&services](const HttpRequest&, const PathParts& parts) -> Reply {
        return json_response(api::delete_stored_response(
            services.store.get(),
            parts[0],
            std::time(nullptr)));
      });
  router.add(
      "GET",
      "/v1/responses/{}/input_items",
      [&services](const HttpRequest& request, const PathParts& parts) -> Reply {
        return json_response(api::stored_input_items(
            services.store.get(),
            parts[0],
            read_page(request),
            std::time(nullptr)));
      });
}

}  // namespace mlxx::server
