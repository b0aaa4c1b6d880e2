#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mlxx/api/answer.h"
#include "mlxx/api/errors.h"
#include "mlxx/base/json.h"
#include "mlxx/engine/model_texts.h"
#include "mlxx/server/engine_port.h"
#include "mlxx/server/http_message.h"
#include "mlxx/server/server_metrics.h"

namespace mlxx::server {

// What the routes need. One for the server, shared by all threads.
struct Services {
  std::shared_ptr<engine::ModelTexts> texts;
  std::shared_ptr<EnginePort> engine;
  std::shared_ptr<api::ResponseStore> store;  // may be null
  ServerMetrics metrics;
  api::Limits limits;
  std::shared_ptr<const OrderedJson> template_variables;  // may be null
  JsonLimits json;
  // Of requests for the first model that name no adapter; "" for none.
  std::string default_adapter;
  size_t max_unsent_bytes = size_t{8} << 20;
  std::function<size_t()> connections;  // open ones
  std::chrono::steady_clock::time_point started =
      std::chrono::steady_clock::now();
};

// Whose shape errors have: that of the endpoint's protocol.
enum class ErrorShape { openai, anthropic };
ErrorShape error_shape(const std::string& path);
HttpResponse error_response(
    ErrorShape shape,
    const api::ErrorReply& error,
    const std::string& request_id);
HttpResponse error_response(
    const HttpRequest& request,
    const std::exception& error);

// The body as JSON. RequestError 400 for anything else.
OrderedJson read_body(const HttpRequest& request, const Services& services);
// The model that the body names, or the first one. RequestError 400 for what
// is no name, 404 for a name that is not served.
std::shared_ptr<const engine::ModelText> find_model(
    const OrderedJson& body,
    const Services& services);
api::Context make_context(
    std::shared_ptr<const engine::ModelText> model,
    const Services& services);
HttpResponse json_response(std::string body, int status = 200);
// X-Mlxx-Ignored: the fields of the request that nothing was made of.
void add_ignored(HttpResponse& response, const std::vector<std::string>& names);

}  // namespace mlxx::server
