#include "mlxx/server/api_server.h"

#include <utility>

#include "mlxx/server/routes.h"

namespace mlxx::server {

namespace {

api::ErrorReply
plain_error(int status, std::string message, std::string code = "") {
  api::ErrorReply error;
  error.status = status;
  error.message = std::move(message);
  error.type = status == 401 ? "authentication_error"
      : status == 403        ? "permission_error"
      : status == 404        ? "not_found_error"
      : status == 503        ? "overloaded_error"
      : status < 500         ? "invalid_request_error"
                             : "server_error";
  error.code = std::move(code);
  if (status == 503) {
    error.retry_after_seconds = 1;
  }
  return error;
}

}  // namespace

ApiServer::ApiServer(
    std::shared_ptr<Services> services,
    const AccessOptions& access,
    AccessLog log)
    : services_(std::move(services)), access_(access), log_(std::move(log)) {
  add_answer_routes(router_, *services_);
  add_stored_response_routes(router_, *services_);
  add_vector_routes(router_, *services_);
  add_text_routes(router_, *services_);
  add_model_routes(router_, *services_);
  add_adapter_routes(router_, *services_);
  add_cache_routes(router_, *services_);
  add_status_routes(router_, *services_);
}

HttpResponse ApiServer::error_response(
    const HttpRequest& request,
    int status,
    const std::string& message) {
  return server::error_response(
      error_shape(request.path),
      plain_error(status, message),
      request.id);
}

HttpResponse ApiServer::preflight(const HttpRequest& request) const {
  HttpResponse response;
  response.status = 204;
  response.content_type.clear();
  auto match = router_.find("OPTIONS", request.path);
  std::string methods = match.allowed.empty() ? "" : match.allowed + ", ";
  response.headers.push_back({"Allow", methods + "OPTIONS"});
  if (request.has_header("access-control-request-method") &&
      !access_.origin_headers(request).empty()) {
    response.headers.push_back(
        {"Access-Control-Allow-Methods", methods + "OPTIONS"});
    response.headers.push_back(
        {"Access-Control-Allow-Headers",
         "Authorization, Content-Type, X-Api-Key, Anthropic-Version, "
         "Anthropic-Beta, OpenAI-Organization, OpenAI-Project, X-Request-Id"});
    response.headers.push_back({"Access-Control-Max-Age", "600"});
  }
  return response;
}

std::optional<HttpResponse> ApiServer::refuse(
    HttpRequest& request,
    bool only_status) {
  auto shape = error_shape(request.path);
  auto refusal_of = [&](int status, std::string message, std::string code) {
    return server::error_response(
        shape,
        plain_error(status, std::move(message), std::move(code)),
        request.id);
  };
  bool is_preflight = request.method == "OPTIONS";
  auto match = router_.find(request.method, request.path);
  bool is_open = is_preflight || (match.route && match.route->open);
  if (auto refused = access_.check(request, is_open)) {
    return refusal_of(
        refused->status,
        std::move(refused->message),
        std::move(refused->code));
  }
  request.answer_headers = access_.origin_headers(request);
  request.tenant = access_.tenant(request);
  if (is_preflight) {
    return preflight(request);
  }
  if (!match.route && match.allowed.empty()) {
    return refusal_of(404, "[path] there is no such endpoint", "not_found");
  }
  if (!match.route) {
    auto response = refusal_of(
        405,
        "[method] this endpoint takes " + match.allowed,
        "bad_method");
    response.headers.push_back({"Allow", match.allowed});
    return response;
  }
  if (only_status && !match.route->status) {
    return refusal_of(
        503,
        "[server] all connections are taken",
        "too_many_connections");
  }
  return std::nullopt;
}

bool ApiServer::is_immediate(const HttpRequest& request) {
  auto match = router_.find(request.method, request.path);
  return match.route && match.route->immediate;
}

Reply ApiServer::handle(const HttpRequest& request) {
  auto match = router_.find(request.method, request.path);
  try {
    return match.route->handler(request, match.parts);
  } catch (const std::exception& error) {
    return server::error_response(request, error);
  }
}

void ApiServer::served(const HttpRequest& request, const Served& how) {
  auto match = router_.find(request.method, request.path);
  services_->metrics.add_http(
      match.route ? match.route->pattern : "other",
      how.status,
      how.seconds);
  if (log_) {
    log_({request, how});
  }
}

}  // namespace mlxx::server
