// For tests in Python, as JSON lines on standard output.
//   block_transcripts answers   what /v1/messages and /v1/responses answer to
//                               tests/data/api/block_answers.json
//   block_transcripts read      for each line {"endpoint", "body"} of standard
//                               input {"status", "param", "ignored"}
//   block_transcripts tables    the tables of fields, one line
//   block_transcripts streams   writes tests/data/api/streams
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

std::vector<std::string> letters(const std::string& text) {
  return cuts_of(text)[1];
}

void print_answers(bool messages) {
  for (const BlockCase& test : block_cases()) {
    ResponseStore store({});
    Context context = test.context();
    context.store = &store;
    auto answer = [&](bool stream) {
      if (messages) {
        return answer_messages(test.messages_body(stream), context);
      }
      OrderedJson body = test.responses_body(stream);
      body["include"] = {"message.output_text.logprobs"};
      return answer_response(body, context);
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
  } else if (what == "streams") {
    for (const char* protocol : {"messages", "responses"}) {
      for (const auto& [name, about] : kKeptStreams) {
        std::ofstream(stream_file(protocol, name))
            << stream_to_keep(protocol, about);
      }
    }
  } else {
    return 2;
  }
  return 0;
}
