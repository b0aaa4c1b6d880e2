#pragma once

#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/api/tiny_model.h"

// Answers whose parts come one after the other: tests/data/api/
// block_answers.json, for /v1/messages and /v1/responses alike.
namespace mlxx::api {

struct BlockCase {
  OrderedJson json;

  std::string about() const {
    return json["about"];
  }
  std::string text() const {
    return json["text"];
  }
  Context context() const {
    const bool thinking = json.value("template", "") == "thinking";
    return tiny_context(
        tiny_model(thinking ? kThinkingTemplate : kTinyTemplate));
  }
  bool has_tools() const {
    return json.value("tools", false);
  }

  OrderedJson messages_body(bool stream) const {
    OrderedJson body = OrderedJson::parse(
        R"({"model": "tiny", "max_tokens": 100,
        "messages": [{"role": "user", "content": "hi"}]})");
    body["stream"] = stream;
    if (has_tools()) {
      body["tools"] = OrderedJson::parse(
          R"([{"name": "f", "input_schema": {"type": "object", "properties":
          {"x": {"type": "integer"}}}}])");
    }
    return body;
  }
  OrderedJson responses_body(bool stream) const {
    OrderedJson body = {{"input", "hi"}, {"stream", stream}};
    if (has_tools()) {
      body["tools"] = OrderedJson::parse(
          R"([{"type": "function", "name": "f", "strict": null, "parameters":
          {"type": "object", "properties": {"x": {"type": "integer"}}}}])");
    }
    return body;
  }

  std::vector<engine::Event> events(
      const std::vector<std::string>& pieces) const {
    const bool cut = json.value("finish", "stop") == "length";
    auto out = events_of(
        pieces,
        cut ? engine::FinishReason::length : engine::FinishReason::stop);
    out.back().finish->stop_sequence = json.value("stop_sequence", "");
    return out;
  }
};

inline std::vector<BlockCase> block_cases() {
  std::ifstream file(MLXX_TEST_DATA "/api/block_answers.json");
  std::vector<BlockCase> out;
  for (const OrderedJson& json : OrderedJson::parse(file)) {
    out.push_back({json});
  }
  return out;
}

inline BlockCase block_case(const std::string& about) {
  for (BlockCase& test : block_cases()) {
    if (test.about() == about) {
      return test;
    }
  }
  ADD_FAILURE() << "there is no case '" << about << "'";
  return {};
}

// Cases whose streams are kept, by their files in tests/data/api/streams.
inline const std::vector<std::pair<std::string, std::string>> kKeptStreams = {
    {"reasoning", "reasoning, then text"},
    {"call", "text, then a call"},
    {"cut", "a good call, then one cut by the limit"},
};

// The text cut between characters: whole, each of them alone, at random.
inline std::vector<std::vector<std::string>> cuts_of(const std::string& text) {
  std::vector<std::string> letters;
  for (char byte : text) {
    if ((static_cast<uint8_t>(byte) & 0xc0) != 0x80) {
      letters.emplace_back();
    }
    letters.back() += byte;
  }
  std::vector<std::vector<std::string>> out = {{text}, letters};
  std::mt19937 random(7);
  for (int i = 0; i < 40; ++i) {
    std::vector<std::string> pieces;
    for (const std::string& letter : letters) {
      if (pieces.empty() || random() % (2 + i % 7) == 0) {
        pieces.emplace_back();
      }
      pieces.back() += letter;
    }
    out.push_back(std::move(pieces));
  }
  return out;
}

// The stream of a kept case, of "messages" or "responses".
inline std::string stream_to_keep(
    const std::string& protocol,
    const std::string& about) {
  const BlockCase test = block_case(about);
  const Context context = test.context();
  auto answer = protocol == "messages"
      ? answer_messages(test.messages_body(true), context)
      : answer_response(test.responses_body(true), context);
  return stream_of(*answer, test.events(cuts_of(test.text())[3]));
}
inline std::string stream_file(
    const std::string& protocol,
    const std::string& name) {
  return fmt::format(
      "{}/api/streams/{}-{}.sse",
      MLXX_TEST_DATA,
      protocol,
      name);
}

// Frames with names: each "event: NAME\ndata: JSON\n\n", the name being the
// type of the data.
inline std::vector<OrderedJson> named_frames(std::string_view stream) {
  std::vector<OrderedJson> out;
  while (!stream.empty()) {
    const size_t line = stream.find('\n');
    const size_t end = stream.find("\n\n");
    if (!stream.starts_with("event: ") || end == std::string_view::npos ||
        !stream.substr(line + 1).starts_with("data: ")) {
      ADD_FAILURE() << "not a frame: " << stream.substr(0, 200);
      break;
    }
    const std::string_view name = stream.substr(7, line - 7);
    out.push_back(OrderedJson::parse(stream.substr(line + 7, end - line - 7)));
    EXPECT_EQ(out.back()["type"], name);
    stream.remove_prefix(end + 2);
  }
  return out;
}

// The answer of a body that does not stream.
inline OrderedJson body_after(
    Answer& answer,
    const std::vector<engine::Event>& events) {
  EXPECT_FALSE(answer.streams());
  EXPECT_EQ(stream_of(answer, events), "");
  return OrderedJson::parse(answer.body());
}

}  // namespace mlxx::api
