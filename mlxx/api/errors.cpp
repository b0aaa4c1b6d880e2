#include "mlxx/api/errors.h"

#include <nlohmann/json.hpp>

#include "mlxx/api/answer.h"
#include "mlxx/api/json_writer.h"
#include "mlxx/base/utf8.h"

namespace mlxx::api {

namespace {

// "[place] ..." -> "place"
std::string_view place_of(std::string_view message) {
  const size_t end = message.find(']');
  return message.starts_with('[') && end != std::string_view::npos
      ? message.substr(1, end - 1)
      : std::string_view();
}

// The field that a place stands for; "" for a place that is none.
std::string_view field_of(std::string_view place) {
  return place == "adapter"                                 ? "adapters"
      : place.find_first_of(" /") != std::string_view::npos ? ""
                                                            : place;
}

std::string_view type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

// docs/errors.md, with the two kinds that a client can do something about.
void describe_kind(const Error& error, ErrorReply& reply) {
  const std::string_view place = place_of(error.what());
  switch (error.kind()) {
    case ErrorKind::invalid_request:
      reply.status = 400;
      reply.param = field_of(place);
      if (place == "context_length_exceeded") {
        reply.param = "";
        reply.code = place;
      }
      break;
    case ErrorKind::unsupported:
      reply.status = 501;
      reply.code = "unsupported";
      break;
    case ErrorKind::not_found:
      reply.status = 404;
      reply.code = place == "model" ? "model_not_found" : "not_found";
      reply.param = field_of(place);
      break;
    case ErrorKind::out_of_memory:
      reply.status = 503;
      reply.code = "out_of_memory";
      reply.retry_after_seconds = 5;
      if (place == "memory_admission") {
        reply.status = 400;
        reply.type = place;
        reply.code = "context_over_budget";
        reply.retry_after_seconds = 0;
      }
      break;
    case ErrorKind::cancelled:
      reply.status = 499;
      reply.code = "cancelled";
      break;
    case ErrorKind::bad_file:
    case ErrorKind::internal:
      reply.status = 500;
      reply.code = to_string(error.kind());
      break;
  }
}

// "[/models/a/config.json] ..." -> "[config.json] ...": where this machine
// keeps its files is nothing that clients are told.
std::string without_folders(std::string message) {
  const std::string_view place = place_of(message);
  if (place.starts_with('/')) {
    message.erase(1, place.rfind('/') + 1);
  }
  return message;
}

OrderedJson or_null(const std::string& text) {
  return text.empty() ? OrderedJson() : OrderedJson(text);
}

OrderedJson error_object(const ErrorReply& reply) {
  return {
      {"error",
       {{"message", reply.message},
        {"type", reply.type},
        {"param", or_null(reply.param)},
        {"code", or_null(reply.code)}}}};
}

}  // namespace

ErrorReply describe_error(const std::exception& error) {
  ErrorReply reply;
  reply.message = escape_line(error.what());
  if (!dynamic_cast<const RequestError*>(&error)) {
    reply.message = without_folders(std::move(reply.message));
  }
  if (const auto* request = dynamic_cast<const RequestError*>(&error)) {
    reply.status = request->status();
    reply.param = request->param();
    reply.code = request->code();
  } else if (const auto* busy = dynamic_cast<const engine::Busy*>(&error)) {
    reply.status = busy->queue_full() ? 429 : 503;
    reply.code = busy->queue_full() ? "queue_full" : "unavailable";
    reply.retry_after_seconds = busy->retry_after_seconds();
  } else if (const auto* known = dynamic_cast<const Error*>(&error)) {
    describe_kind(*known, reply);
  } else {
    reply.code = "internal";
  }
  if (reply.type.empty()) {
    reply.type = type_of(reply.status);
  }
  return reply;
}

std::string openai_error_body(const ErrorReply& reply) {
  return write_json(error_object(reply));
}

std::string openai_error_frame(const ErrorReply& reply) {
  return sse_frame(error_object(reply));
}

}  // namespace mlxx::api
