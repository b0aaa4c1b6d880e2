// For tests in Python, as JSON lines on standard output.
//   block_transcripts answers   what /v1/messages and /v1/responses answer to
//                               tests/data/api/block_answers.json
//   block_transcripts read      for each line {"endpoint", "body"} of standard
//                               input {"status", "param", "ignored"}
//   block_transcripts tables    the tables of fields, one line
#include <iostream>

#include "mlxx/api/anthropic_errors.h"
#include "mlxx/api/errors.h"
#include "mlxx/api/fields.h"
#include "mlxx/api/json_writer.h"
#include "mlxx/api/messages.h"
#include "mlxx/api/response_request.h"
#include "mlxx/api/response_store.h"
#include "mlxx/api/stored_responses.h"
#include "tests/api/block_cases.h"

namespace mlxx::api {
namespace {

void print(const OrderedJson& line) {
  std::cout << write_json(line) << "\n";
}

OrderedJson body_of(const BlockCase& test, bool messages, bool stream) {
  OrderedJson body = messages ? OrderedJson::parse(
                                    R"({"model": "tiny", "max_tokens": 100,
            "messages": [{"role": "user", "content": "hi"}]})")
                              : OrderedJson::parse(
                                    R"({"model": "tiny", "input": "hi",
            "include": ["message.output_text.logprobs"]})");
  body["stream"] = stream;
  if (test.has_tools()) {
    body["tools"] = OrderedJson::parse(
        messages ? R"([{"name": "f", "input_schema": {"type": "object"}}])"
                 : R"([{"type": "function", "name": "f", "parameters": {"type":
                   "object"}, "strict": null}])");
  }
  return body;
}

std::vector<std::string> letters(const std::string& text) {
  return cuts_of(text)[1];
}

void print_answers(bool messages) {
  for (const BlockCase& test : block_cases()) {
    ResponseStore store({});
    Context context = test.context();
    context.store = &store;
    auto answer = [&](bool stream) {
      const OrderedJson body = body_of(test, messages, stream);
      return messages ? answer_messages(body, context)
                      : answer_response(body, context);
    };
    // The names that the two get are the same.
    auto plain = answer(false);
    const OrderedJson body =
        body_after(*plain, test.events(letters(test.text())));
    context.make_id = test.context().make_id;
    auto streamed = answer(true);
    OrderedJson line = {
        {"about", test.about()},
        {"kind", messages ? "message" : "response"},
        {"body", body}};
    line["stream"] = stream_of(*streamed, test.events(letters(test.text())));
    auto failing = answer(true);
    std::string failed = failing->begin();
    failed += failing->take(0, test.events({test.text()})[0]);
    failed += failing->failure(Error(ErrorKind::internal, "[gpu] it broke"));
    line["failed_stream"] = failed;
    if (!messages) {
      const std::string id = body["id"];
      line["items"] = OrderedJson::parse(
          stored_input_items(&store, id, {}, context.unix_time));
      line["stored"] =
          OrderedJson::parse(stored_response(&store, id, context.unix_time));
    }
    print(line);
  }
}

void print_others() {
  const Context context = tiny_context();
  std::vector<std::string> ignored;
  print(
      {{"kind", "count"},
       {"body",
        OrderedJson::parse(count_message_tokens(
            OrderedJson::parse(count_tokens_fields().minimal),
            context,
            ignored))}});
  print(
      {{"kind", "input_tokens"},
       {"body",
        OrderedJson::parse(count_response_tokens(
            OrderedJson::parse(response_fields().minimal),
            context,
            ignored))}});
  for (int status : {400, 401, 403, 404, 413, 429, 500, 503, 504}) {
    ErrorReply reply;
    reply.status = status;
    reply.message = "[place] what";
    print(
        {{"kind", "error"},
         {"status", status},
         {"body", OrderedJson::parse(anthropic_error_body(reply, "req_1"))}});
  }
}

OrderedJson result_of(const OrderedJson& line, const Context& context) {
  const std::string endpoint = line["endpoint"];
  const OrderedJson& body = line["body"];
  std::vector<std::string> ignored;
  try {
    if (endpoint == message_fields().endpoint) {
      ignored = answer_messages(body, context)->ignored();
    } else if (endpoint == count_tokens_fields().endpoint) {
      count_message_tokens(body, context, ignored);
    } else {
      ignored = answer_response(body, context)->ignored();
    }
  } catch (const RequestError& error) {
    return {{"status", error.status()}, {"param", error.param()}};
  } catch (const std::exception& error) {
    return {{"status", 500}, {"error", error.what()}};
  }
  return {{"status", 200}, {"ignored", ignored}};
}

void read_bodies() {
  // Whose template takes any conversation, and which reasons.
  ResponseStore store({});
  Context context = tiny_context(tiny_model(kThinkingTemplate));
  context.store = &store;
  std::string line;
  while (std::getline(std::cin, line)) {
    print(result_of(OrderedJson::parse(line), context));
  }
}

}  // namespace
}  // namespace mlxx::api

int main(int argc, char** argv) {
  using namespace mlxx::api;
  const std::string what = argc == 2 ? argv[1] : "";
  if (what == "answers") {
    print_answers(true);
    print_answers(false);
    print_others();
  } else if (what == "read") {
    read_bodies();
  } else if (what == "tables") {
    print(field_tables_json());
  } else {
    return 2;
  }
  return 0;
}
