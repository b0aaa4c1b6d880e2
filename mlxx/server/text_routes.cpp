#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "mlxx/api/chat_request.h"
#include "mlxx/api/messages.h"
#include "mlxx/api/response_request.h"
#include "mlxx/api/tokenize.h"
#include "mlxx/server/routes.h"

namespace mlxx::server {

namespace {

// Text in, text out, without the engine.
using ReadText = std::string (*)(
    const OrderedJson& body,
    const api::Context& context,
    std::vector<std::string>& ignored);

std::string apply_template(
    const OrderedJson& body,
    const api::Context& context,
    std::vector<std::string>&) {
  return api::apply_template(body, context);
}

void add(
    Router& router,
    Services& services,
    const char* pattern,
    ReadText read) {
  Route route;
  route.method = "POST";
  route.pattern = pattern;
  route.handler =
      [&services, read](const HttpRequest& request, const PathParts&) -> Reply {
    auto body = read_body(request, services);
    auto context = make_context(find_model(body, services), services);
    std::vector<std::string> ignored;
    auto response = json_response(read(body, context, ignored));
    add_ignored(response, ignored);
    return response;
  };
  router.add(std::move(route));
}

}  // namespace

void add_text_routes(Router& router, Services& services) {
  add(router, services, "/tokenize", api::tokenize);
  add(router, services, "/detokenize", api::detokenize);
  add(router, services, "/apply-template", apply_template);
  add(router, services, "/v1/messages/count_tokens", api::count_message_tokens);
  add(router,
      services,
      "/v1/responses/input_tokens",
      api::count_response_tokens);
}

}  // namespace mlxx::server
