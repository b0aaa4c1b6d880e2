#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/engine/model_text.h"
#include "mlxx/engine/request.h"

namespace mlxx::api {

// A refused request, in the terms of the protocols: HTTP status, which field,
// which code ("context_length_exceeded", "unsupported_parameter"...).
class RequestError : public Error {
 public:
  RequestError(
      int status,
      std::string_view message,
      std::string param = "",
      std::string code = "")
      : Error(ErrorKind::invalid_request, message),
        status_(status),
        param_(std::move(param)),
        code_(std::move(code)) {}
  int status() const {
    return status_;
  }
  const std::string& param() const {
    return param_;
  }
  const std::string& code() const {
    return code_;
  }

 private:
  int status_;
  std::string param_;
  std::string code_;
};

// What the operator allows a request.
struct Limits {
  int max_n = 16;
  int max_tokens = 0;            // of an answer; 0: the model's context
  int default_max_tokens = 512;  // of an answer that asks for no number
  int max_prompts = 128;         // of one completions request
  int max_stop = 16;             // stop strings
  int max_stop_bytes = 1024;     // of one
  int max_top_logprobs = 20;
  int max_schema_bytes = 1 << 18;  // of a schema
  int max_grammar_bytes = 1 << 14;
  int max_pattern_bytes = 1 << 13;  // of all patterns in the tools' schemas
  int max_tools = 256;
  int max_logit_bias = 1024;
  bool request_templates = false;  // chat_template in a request
  bool strict = false;             // unknown fields are refused
};

class ResponseStore;

// What an endpoint needs beside the body of the request.
struct Context {
  std::shared_ptr<const engine::ModelText> model;
  Limits limits;
  int64_t unix_time = 0;
  // A fresh unguessable name with that prefix: "chatcmpl-..." .
  // Called on the thread that reads the body and by take().
  std::function<std::string(std::string_view prefix)> make_id;
  ResponseStore* store = nullptr;  // of /v1/responses; may be null
  // Of the chat template, where a request gives no others; null for none.
  std::shared_ptr<const OrderedJson> template_variables;
};

// One generating request on its way: what the engine is to do for it, and what
// the engine's events become. Text in, text out; one thread at a time.
class Answer {
 public:
  virtual ~Answer() = default;

  // One for each prompt; taken by the caller once.
  virtual std::vector<engine::Request> take_requests() = 0;
  virtual bool streams() const = 0;
  // Names of fields that were ignored (X-Mlxx-Ignored).
  virtual const std::vector<std::string>& ignored() const = 0;

  // Takes what the engine says of request `index`. Returns the frames of the
  // stream that it adds (whole "data: ...\n\n"), often none; "" if the answer
  // does not stream. An event that finishes with an error or cancelled adds
  // nothing: the caller sends failure() in place of end().
  virtual std::string take(size_t index, const engine::Event& event) = 0;
  // Frames before the first event, and after the last one of all requests.
  virtual std::string begin() = 0;
  virtual std::string end() = 0;
  // Of an answer that does not stream, once all requests have ended. Throws
  // the error that a request finished with.
  virtual std::string body() = 0;
  // The frames that end a stream that failed; no terminator follows.
  virtual std::string failure(const Error& error) = 0;
};

// Each reads the body of its endpoint. Errors: RequestError naming the field.
std::unique_ptr<Answer> answer_chat(const OrderedJson& body, const Context&);
std::unique_ptr<Answer> answer_completion(
    const OrderedJson& body,
    const Context&);
std::unique_ptr<Answer> answer_messages(
    const OrderedJson& body,
    const Context&);
std::unique_ptr<Answer> answer_response(
    const OrderedJson& body,
    const Context&);

}  // namespace mlxx::api
