#include <memory>
#include <utility>

#include <nlohmann/json.hpp>

#include "mlxx/server/answer_reply.h"
#include "mlxx/server/routes.h"

namespace mlxx::server {

namespace {

using ReadAnswer =
    std::unique_ptr<api::Answer> (*)(const OrderedJson&, const api::Context&);

}  // namespace

void add_answer_routes(Router& router, Services& services) {
  auto add = [&](const char* pattern, ReadAnswer read) {
    Route route;
    route.method = "POST";
    route.pattern = pattern;
    route.handler = [&services, read](
                        const HttpRequest& request,
                        const PathParts&) -> Reply {
      auto body = read_body(request, services);
      auto context = make_context(find_model(body, services), services);
      return make_answer_reply(services, request, read(body, context));
    };
    router.add(std::move(route));
  };
  add("/v1/chat/completions", api::answer_chat);
  add("/chat/completions", api::answer_chat);
  add("/v1/completions", api::answer_completion);
  add("/v1/messages", api::answer_messages);
  add("/v1/responses", api::answer_response);
}

}  // namespace mlxx::server
