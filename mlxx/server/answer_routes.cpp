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
      auto model = find_model(body, services);
      bool is_first = model->name == services.texts->list().front().name;
      // "adapters": "none" is a choice, too.
      std::string adapter = is_first && !body.contains("adapters")
          ? services.default_adapter
          : "";
      auto answer = read(body, make_context(std::move(model), services));
      return make_answer_reply(services, request, std::move(answer), adapter);
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
