#pragma once

#include <exception>
#include <string>

namespace mlxx::api {

// An error in terms that every protocol has.
struct ErrorReply {
  int status = 500;
  std::string message;
  std::string type;   // OpenAI's: "invalid_request_error", "server_error"...
  std::string param;  // "" for none
  std::string code;   // "" for none
  int retry_after_seconds = 0;  // of 429 and 503; 0: no header
};

// RequestError, engine::Busy and Error by their kind and place; anything else
// is an internal error whose text is kept. Messages are one line of valid
// UTF-8 at most 4 KiB long.
ErrorReply describe_error(const std::exception& error);

// {"error": {"message", "type", "param", "code"}}, as OpenAI has it.
std::string openai_error_body(const ErrorReply& reply);
// The same as a frame of a stream.
std::string openai_error_frame(const ErrorReply& reply);

}  // namespace mlxx::api
