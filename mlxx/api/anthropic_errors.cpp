#include "mlxx/api/anthropic_errors.h"

#include <nlohmann/json.hpp>

#include "mlxx/api/json_writer.h"

namespace mlxx::api {

namespace {

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
    case 529:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

OrderedJson error_object(const ErrorReply& reply, std::string_view request_id) {
  OrderedJson out = {
      {"type", "error"},
      {"error",
       {{"type", anthropic_type(reply.status)}, {"message", reply.message}}}};
  if (!request_id.empty()) {
    out["request_id"] = request_id;
  }
  return out;
}

}  // namespace

std::string anthropic_error_body(
    const ErrorReply& reply,
    std::string_view request_id) {
  return write_json(error_object(reply, request_id));
}

std::string anthropic_error_frame(
    const ErrorReply& reply,
    std::string_view request_id) {
  return sse_frame(error_object(reply, request_id), "error");
}

}  // namespace mlxx::api
