#include <memory>
#include <utility>

#include <nlohmann/json.hpp>

#include "mlxx/api/vectors.h"
#include "mlxx/server/later_reply.h"
#include "mlxx/server/routes.h"

namespace mlxx::server {

namespace {

Reply embed(Services& services, const HttpRequest& request) {
  auto body = read_body(request, services);
  auto context = make_context(find_model(body, services), services);
  auto call =
      std::make_shared<api::EmbeddingCall>(api::read_embedding(body, context));
  auto later = std::make_shared<Later>();
  auto sink = answer_into<engine::EmbedAnswer>(
      later,
      request,
      call->ignored,
      [call](const auto& answer) {
        return api::embedding_body(*call, answer);
      });
  auto asked = call->request;
  asked.is_wanted = [later] { return later->is_wanted(); };
  services.engine->embed(std::move(asked), std::move(sink));
  return std::make_unique<LaterReply>(std::move(later));
}

Reply rerank(Services& services, const HttpRequest& request) {
  auto body = read_body(request, services);
  auto context = make_context(find_model(body, services), services);
  auto call =
      std::make_shared<api::RerankCall>(api::read_rerank(body, context));
  auto later = std::make_shared<Later>();
  auto sink = answer_into<engine::RerankAnswer>(
      later,
      request,
      call->ignored,
      [call](const auto& answer) { return api::rerank_body(*call, answer); });
  auto asked = call->request;
  asked.is_wanted = [later] { return later->is_wanted(); };
  services.engine->rerank(std::move(asked), std::move(sink));
  return std::make_unique<LaterReply>(std::move(later));
}

}  // namespace

void add_vector_routes(Router& router, Services& services) {
  auto add = [&](const char* pattern, auto answer) {
    router.add(
        "POST",
        pattern,
        [&services, answer](const HttpRequest& request, const PathParts&) {
          return answer(services, request);
        });
  };
  add("/v1/embeddings", embed);
  add("/v1/rerank", rerank);
  add("/rerank", rerank);
}

}  // namespace mlxx::server
