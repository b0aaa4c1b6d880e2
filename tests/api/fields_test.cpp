#include <fstream>
#include <functional>
#include <sstream>

#include <gtest/gtest.h>

#include "mlxx/api/chat_request.h"
#include "mlxx/api/field_reader.h"
#include "mlxx/api/json_writer.h"
#include "mlxx/api/messages.h"
#include "mlxx/api/tokenize.h"
#include "mlxx/api/vectors.h"
#include "tests/api/fields_page.h"
#include "tests/api/random_bodies.h"
#include "tests/api/tiny_model.h"

namespace mlxx::api {

namespace {

// All that a body asks for, as text that is equal for equal requests.
std::string shown(const engine::Request& request) {
  const auto& s = request.sampling;
  std::string out = fmt::format(
      "{} {} {} n{} m{} e{} p{} t{} k{} p{} m{} x{} {} r{} {} P{} F{} {} s{}",
      request.model,
      request.adapter,
      request.prompt.size(),
      request.n,
      request.max_tokens,
      request.ignore_eos,
      request.priority,
      s.temperature,
      s.top_k,
      s.top_p,
      s.min_p,
      s.xtc_probability,
      s.xtc_threshold,
      s.repetition_penalty,
      s.repetition_context_size,
      s.presence_penalty,
      s.frequency_penalty,
      s.penalty_context_size,
      s.seed.value_or(-12345));
  for (int32_t id : request.prompt) {
    out += fmt::format(" {}", id);
  }
  for (const auto& [id, bias] : s.logit_bias) {
    out += fmt::format(" bias{}={}", id, bias);
  }
  for (const std::string& stop : request.stop) {
    out += " stop" + stop;
  }
  for (const std::string& token : request.visible_tokens) {
    out += " visible" + token;
  }
  out += fmt::format(
      " top{} echo{}",
      request.top_logprobs.value_or(-1),
      request.echo_logprobs);
  if (request.constraint) {
    out += fmt::format(
        " {}:{}",
        static_cast<int>(request.constraint->kind),
        request.constraint->grammar);
  }
  if (request.reasoning) {
    out += fmt::format(
        " reasoning{} {}",
        request.reasoning->open,
        request.reasoning->budget.value_or(-1));
  }
  return out;
}

std::string shown_answer(Answer& answer) {
  std::string out = answer.streams() ? "stream" : "";
  for (const engine::Request& request : answer.take_requests()) {
    out += fmt::format("\n{}", shown(request));
  }
  return out;
}

struct Endpoint {
  const FieldTable* table;
  // Reads a body; returns what it asks for and adds what was ignored.
  std::function<std::string(
      const OrderedJson&,
      const Context&,
      std::vector<std::string>&)>
      read;
};

std::vector<Endpoint> endpoints() {
  return {
      {&chat_fields(),
       [](const OrderedJson& body, const Context& context, auto& ignored) {
         auto answer = answer_chat(body, context);
         ignored = answer->ignored();
         return shown_answer(*answer);
       }},
      {&completion_fields(),
       [](const OrderedJson& body, const Context& context, auto& ignored) {
         auto answer = answer_completion(body, context);
         ignored = answer->ignored();
         return shown_answer(*answer);
       }},
      {&message_fields(),
       [](const OrderedJson& body, const Context& context, auto& ignored) {
         auto answer = answer_messages(body, context);
         ignored = answer->ignored();
         return shown_answer(*answer);
       }},
      {&count_tokens_fields(),
       [](const OrderedJson& body, const Context& context, auto& ignored) {
         return count_message_tokens(body, context, ignored);
       }},
      {&response_fields(),
       [](const OrderedJson& body, const Context& context, auto& ignored) {
         auto answer = answer_response(body, context);
         ignored = answer->ignored();
         return shown_answer(*answer);
       }},
      {&embedding_fields(),
       [](const OrderedJson& body, const Context& context, auto& ignored) {
         auto call = read_embedding(body, context);
         ignored = call.ignored;
         return fmt::format(
             "{} {} {} {}",
             call.request.texts.size(),
             call.base64,
             call.request.dimensions,
             call.truncate);
       }},
      {&rerank_fields(),
       [](const OrderedJson& body, const Context& context, auto& ignored) {
         auto call = read_rerank(body, context);
         ignored = call.ignored;
         return fmt::format(
             "{} {} {}",
             call.request.documents.size(),
             call.top_n,
             call.return_documents);
       }},
      {&tokenize_fields(),
       [](const OrderedJson& body, const Context& context, auto& ignored) {
         return tokenize(body, context, ignored);
       }},
      {&detokenize_fields(),
       [](const OrderedJson& body, const Context& context, auto& ignored) {
         return detokenize(body, context, ignored);
       }},
  };
}

std::string outermost(std::string_view path) {
  return std::string(path.substr(0, path.find_first_of(".[")));
}

OrderedJson
with(const FieldTable& table, std::string_view path, std::string_view value) {
  OrderedJson body = OrderedJson::parse(table.minimal);
  body[outermost(path)] = OrderedJson::parse(value);
  return body;
}

// The param of a refusal, or what else happened.
std::string refusal_of(
    const Endpoint& endpoint,
    const OrderedJson& body,
    const Context& context) {
  std::vector<std::string> ignored;
  try {
    endpoint.read(body, context, ignored);
    return "accepted";
  } catch (const RequestError& error) {
    return fmt::format("{} {}", error.status(), error.param());
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
}

TEST(FieldTables, EveryExampleDoesWhatItsStatusSays) {
  const Context context = tiny_context();
  for (const Endpoint& endpoint : endpoints()) {
    for (const Field& field : endpoint.table->fields) {
      SCOPED_TRACE(
          std::string(endpoint.table->endpoint) + " " +
          std::string(field.path));
      const OrderedJson body = with(*endpoint.table, field.path, field.example);
      const std::string result = refusal_of(endpoint, body, context);
      if (field.status == FieldStatus::refused) {
        EXPECT_TRUE(
            result.starts_with(fmt::format("400 {}", outermost(field.path))))
            << result;
        continue;
      }
      EXPECT_EQ(result, "accepted");
      std::vector<std::string> ignored;
      try {
        endpoint.read(body, context, ignored);
      } catch (const std::exception&) {
      }
      EXPECT_TRUE(ignored.empty()) << ignored[0];
    }
  }
}

TEST(FieldTables, RefusedExamplesOfHonouredFieldsAreNamed) {
  const Context context = tiny_context();
  int tried = 0;
  for (const Endpoint& endpoint : endpoints()) {
    for (const Field& field : endpoint.table->fields) {
      if (field.refused_example.empty()) {
        continue;
      }
      ++tried;
      const std::string result = refusal_of(
          endpoint,
          with(*endpoint.table, field.path, field.refused_example),
          context);
      EXPECT_TRUE(
          result.starts_with(fmt::format("400 {}", outermost(field.path))))
          << endpoint.table->endpoint << " " << field.path << ": " << result;
    }
  }
  EXPECT_GT(tried, 60);
}

TEST(FieldTables, HintsChangeNothing) {
  const Context context = tiny_context();
  for (const Endpoint& endpoint : endpoints()) {
    std::vector<std::string> ignored;
    const std::string plain = endpoint.read(
        OrderedJson::parse(endpoint.table->minimal),
        context,
        ignored);
    for (const Field& field : endpoint.table->fields) {
      if (field.status == FieldStatus::hint &&
          field.path == outermost(field.path)) {
        for (const char* value : {"5", "\"x\"", "[]", "{\"a\": 1}", "true"}) {
          EXPECT_EQ(
              endpoint.read(
                  with(*endpoint.table, field.path, value),
                  context,
                  ignored),
              plain)
              << field.path;
        }
      }
    }
  }
}

TEST(FieldTables, NullIsAbsentForEveryField) {
  const Context context = tiny_context();
  for (const Endpoint& endpoint : endpoints()) {
    const OrderedJson minimal = OrderedJson::parse(endpoint.table->minimal);
    std::vector<std::string> ignored;
    const std::string plain = endpoint.read(minimal, context, ignored);
    for (const Field& field : endpoint.table->fields) {
      const std::string name = outermost(field.path);
      if (name == field.path && !minimal.contains(name)) {
        EXPECT_EQ(
            endpoint
                .read(with(*endpoint.table, name, "null"), context, ignored),
            plain)
            << name;
      }
    }
    EXPECT_TRUE(ignored.empty());
  }
}

TEST(FieldTables, UnknownNamesAreListedOrRefused) {
  Context context = tiny_context();
  for (const Endpoint& endpoint : endpoints()) {
    context.limits.strict = false;
    OrderedJson body = with(*endpoint.table, "no_such_field", "5");
    body["odd\r\nname.x"] = 1;
    std::vector<std::string> ignored;
    endpoint.read(body, context, ignored);
    EXPECT_EQ(
        ignored,
        (std::vector<std::string>{"no_such_field", "odd??name.x"}));
    context.limits.strict = true;
    EXPECT_EQ(refusal_of(endpoint, body, context), "400 no_such_field");
  }
}

TEST(FieldTables, UnknownNamesInsideOfListsAreListedOnce) {
  const Context context = tiny_context();
  auto answer = answer_chat(
      OrderedJson::parse(
          R"({"messages": [{"role": "user", "content": "a", "x": 1},)"
          R"({"role": "user", "content": "b", "x": 2}]})"),
      context);
  EXPECT_EQ(answer->ignored(), std::vector<std::string>{"messages[].x"});
}

TEST(FieldTables, DamagedBodiesAreTakenOrRefused) {
  const Context context = tiny_context();
  for (const Endpoint& endpoint : endpoints()) {
    EXPECT_EQ(
        random_bodies_crash(
            *endpoint.table,
            [&](const OrderedJson& body) {
              std::vector<std::string> ignored;
              endpoint.read(body, context, ignored);
            }),
        "")
        << endpoint.table->endpoint;
  }
}

TEST(FieldTables, PathsAreUniqueAndHaveParents) {
  for (const FieldTable* table : field_tables()) {
    std::set<std::string_view> paths;
    for (const Field& field : table->fields) {
      EXPECT_TRUE(paths.insert(field.path).second) << field.path;
      const size_t dot = field.path.rfind('.');
      if (dot != std::string_view::npos) {
        std::string_view parent = field.path.substr(0, dot);
        if (parent.ends_with("[]")) {
          parent.remove_suffix(2);
        }
        EXPECT_NE(table->find(parent), nullptr) << field.path;
      }
      EXPECT_TRUE(OrderedJson::accept(field.example)) << field.path;
    }
  }
}

TEST(FieldTables, ThePageShowsThem) {
  std::ifstream file(MLXX_TEST_DATA "/../../docs/request-fields.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == fields_page())
      << "build/tests/openai_transcripts page > docs/request-fields.md";
}

TEST(FieldReader, ReadsNoFieldThatItsTableDoesNotHonour) {
  const OrderedJson body = OrderedJson::parse(R"({"input": "x"})");
  std::vector<std::string> ignored;
  const FieldReader fields(body, embedding_fields(), false, ignored);
  EXPECT_THROW(fields.find("user"), Error);
  EXPECT_THROW(fields.find("nothing"), Error);
}

TEST(FieldReader, TakesWholeNumbersWrittenAsReals) {
  EXPECT_EQ(whole_number(OrderedJson(5), 0, 9), 5);
  EXPECT_EQ(whole_number(OrderedJson(5.0), 0, 9), 5);
  EXPECT_EQ(whole_number(OrderedJson(5.5), 0, 9), std::nullopt);
  EXPECT_EQ(whole_number(OrderedJson(1e300), 0, INT64_MAX), std::nullopt);
  EXPECT_EQ(whole_number(OrderedJson(UINT64_MAX), 0, INT64_MAX), std::nullopt);
  EXPECT_EQ(whole_number(OrderedJson(-1), 0, 9), std::nullopt);
  EXPECT_EQ(whole_number(OrderedJson("5"), 0, 9), std::nullopt);
  EXPECT_EQ(whole_number(OrderedJson(true), 0, 9), std::nullopt);
}

}  // namespace

}  // namespace mlxx::api
