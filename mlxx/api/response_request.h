#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mlxx/api/answer.h"
#include "mlxx/api/chat_plan.h"

namespace mlxx::api {

// The body of /v1/responses.
struct ResponseRequest {
  ChatPlan plan;
  // Fields of the response that say again what was asked for.
  SharedJson echo;
  SharedJson input;  // items of this turn, as they are stored
  std::string previous_id;
  bool stream = false;
  bool store = false;
  bool summary = false;    // the reasoning is given as its summary
  bool encrypted = false;  // and once more as encrypted_content
  std::vector<std::string> ignored;
};
ResponseRequest read_response_request(
    const OrderedJson& body,
    const Context& context);

// {"object": "response.input_tokens", "input_tokens": n} for a body of
// /v1/responses (/v1/responses/input_tokens). `ignored` gets the names of
// fields that were ignored.
std::string count_response_tokens(
    const OrderedJson& body,
    const Context& context,
    std::vector<std::string>& ignored);

}  // namespace mlxx::api
