// For documents and for tests in Python, on standard output.
//   openai_transcripts answers   what OpenAI's endpoints answer, as JSON lines
//   openai_transcripts read      for each line {"endpoint", "body"} of standard
//                                input {"status", "param", "ignored"}
//   openai_transcripts tables    the tables of fields, as one line
//   openai_transcripts page      docs/request-fields.md
#include <fstream>
#include <iostream>
#include <sstream>

#include "mlxx/api/errors.h"
#include "mlxx/api/fields.h"
#include "mlxx/api/json_writer.h"
#include "mlxx/api/model_list.h"
#include "mlxx/api/vectors.h"
#include "tests/api/fields_page.h"
#include "tests/api/tiny_model.h"

namespace mlxx::api {
namespace {

void print(const OrderedJson& line) {
  std::cout << write_json(line) << "\n";
}

OrderedJson all_cases() {
  std::ifstream file(MLXX_TEST_DATA "/api/chat_answers.json");
  std::stringstream text;
  text << file.rdbuf();
  return OrderedJson::parse(text.str());
}

// Of both choices where there are two.
std::vector<engine::Event> events_for(const OrderedJson& test, int n) {
  std::vector<engine::Event> out;
  const bool cut = test.value("finish", "stop") == "length";
  for (int choice = 0; choice < n; ++choice) {
    for (auto& event : events_of(
             {test["text"]},
             cut ? engine::FinishReason::length : engine::FinishReason::stop,
             choice)) {
      out.push_back(std::move(event));
    }
  }
  return out;
}

void print_chats() {
  for (const OrderedJson& test : all_cases()) {
    OrderedJson body = OrderedJson::parse(chat_fields().minimal);
    if (test.value("tools", false)) {
      body["tools"] = OrderedJson::parse(
          R"([{"type": "function", "function": {"name": "f"}}])");
    }
    body.update(test.value("more", OrderedJson::object()));
    const bool thinking = test.value("template", "") == "thinking";
    const Context context =
        tiny_context(tiny_model(thinking ? kThinkingTemplate : kTinyTemplate));
    const auto events = events_for(test, body.value("n", 1));
    auto plain = answer_chat(body, context);
    for (const engine::Event& event : events) {
      plain->take(0, event);
    }
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    auto streamed = answer_chat(body, context);
    print(
        {{"kind", "chat"},
         {"about", test["about"]},
         {"body", OrderedJson::parse(plain->body())},
         {"stream", stream_of(*streamed, events)}});
  }
}

void print_completions() {
  for (const char* more :
       {"{}", R"({"logprobs": 2, "echo": true})", R"({"n": 2})"}) {
    OrderedJson body = OrderedJson::parse(completion_fields().minimal);
    body.update(OrderedJson::parse(more));
    const auto events =
        events_for({{"text", "h\u00e9llo"}}, body.value("n", 1));
    auto plain = answer_completion(body, tiny_context());
    for (const engine::Event& event : events) {
      plain->take(0, event);
    }
    body["stream"] = true;
    auto streamed = answer_completion(body, tiny_context());
    print(
        {{"kind", "completion"},
         {"about", more},
         {"body", OrderedJson::parse(plain->body())},
         {"stream", stream_of(*streamed, events)}});
  }
}

void print_others() {
  engine::EmbedAnswer vectors;
  vectors.vectors = {{0.6f, -0.8f}, {1.0f, 0.0f}};
  vectors.tokens = 5;
  for (bool base64 : {false, true}) {
    EmbeddingCall call;
    call.request.model = "tiny";
    call.base64 = base64;
    print(
        {{"kind", base64 ? "embeddings_base64" : "embeddings"},
         {"body", OrderedJson::parse(embedding_body(call, vectors))}});
  }
  const std::vector<engine::ListedModel> models = {{"tiny", 1700000000, true}};
  print(
      {{"kind", "models"},
       {"body", OrderedJson::parse(model_list_body(models))}});
  print(
      {{"kind", "model"},
       {"body", OrderedJson::parse(model_body(models, "tiny"))}});
}

OrderedJson result_of(const OrderedJson& line, const Context& context) {
  const std::string endpoint = line["endpoint"];
  const OrderedJson& body = line["body"];
  std::vector<std::string> ignored;
  try {
    if (endpoint == chat_fields().endpoint) {
      ignored = answer_chat(body, context)->ignored();
    } else if (endpoint == completion_fields().endpoint) {
      ignored = answer_completion(body, context)->ignored();
    } else {
      ignored = read_embedding(body, context).ignored;
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
  const Context context = tiny_context(tiny_model(kThinkingTemplate));
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
    print_chats();
    print_completions();
    print_others();
  } else if (what == "read") {
    read_bodies();
  } else if (what == "tables") {
    print(field_tables_json());
  } else if (what == "page") {
    std::cout << fields_page();
  } else {
    return 2;
  }
  return 0;
}
