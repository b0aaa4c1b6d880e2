#include "mlxx/server/services.h"

#include <ctime>

#include <nlohmann/json.hpp>

#include "mlxx/api/anthropic_errors.h"
#include "mlxx/api/model_list.h"
#include "mlxx/server/random_id.h"

namespace mlxx::server {

ErrorShape error_shape(const std::string& path) {
  return path.starts_with("/v1/messages") ? ErrorShape::anthropic
                                          : ErrorShape::openai;
}

HttpResponse json_response(std::string body, int status) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

void add_ignored(
    HttpResponse& response,
    const std::vector<std::string>& names) {
  constexpr size_t kMaxBytes = 1024;
  std::string list;
  for (const auto& name : names) {
    list.append(list.empty() ? "" : ", ").append(name);
  }
  if (!list.empty()) {
    response.headers.push_back({"X-Mlxx-Ignored", list.substr(0, kMaxBytes)});
  }
}

HttpResponse error_response(
    ErrorShape shape,
    const api::ErrorReply& error,
    const std::string& request_id) {
  auto response = json_response(
      shape == ErrorShape::anthropic
          ? api::anthropic_error_body(error, request_id)
          : api::openai_error_body(error),
      error.status);
  if (error.retry_after_seconds > 0) {
    response.headers.push_back(
        {"Retry-After", std::to_string(error.retry_after_seconds)});
  }
  if (error.status == 401) {
    response.headers.push_back({"WWW-Authenticate", "Bearer"});
  }
  return response;
}

HttpResponse error_response(
    const HttpRequest& request,
    const std::exception& error) {
  return error_response(
      error_shape(request.path),
      api::describe_error(error),
      request.id);
}

OrderedJson read_body(const HttpRequest& request, const Services& services) {
  OrderedJson body;
  try {
    body = parse_ordered_json(request.body, "body", services.json);
  } catch (const Error& error) {
    throw api::RequestError(400, error.what(), "", "invalid_json");
  }
  if (!body.is_object()) {
    throw api::RequestError(
        400,
        "[body] must be a JSON object",
        "",
        "invalid_type");
  }
  return body;
}

std::shared_ptr<const engine::ModelText> find_model(
    const OrderedJson& body,
    const Services& services) {
  std::string name = api::requested_model(body);
  try {
    return services.texts->text(name);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::not_found) {
      throw;
    }
    if (!std::string_view(error.what()).starts_with("[model]")) {
      // The model is served, but files of it are gone.
      throw Error(ErrorKind::bad_file, error.what());
    }
    throw api::RequestError(404, error.what(), "model", "model_not_found");
  }
}

api::Context make_context(
    std::shared_ptr<const engine::ModelText> model,
    const Services& services) {
  api::Context context;
  context.model = std::move(model);
  context.limits = services.limits;
  context.unix_time = std::time(nullptr);
  context.make_id = random_id;
  context.store = services.store.get();
  context.template_variables = services.template_variables;
  return context;
}

}  // namespace mlxx::server
