#pragma once

#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/json.h"
#include "mlxx/text/tool_format.h"

namespace mlxx::text {

// One case of tests/data/text/tool_calls/FORMAT/*.txt. Such a file has cases
//   >>> NAME [WORD...]     words: think, open, no_tools
//   what the model writes
//   <<<
//   the expected JSON: "reasoning", "content" (absent: none), "calls" with
//   "name" and "arguments", an object, or a string for text as it is
struct ToolCallCase {
  std::string format;
  std::string name;
  bool think = false;     // the model reasons between <think> and </think>
  bool open = false;      // and the prompt has opened it
  bool no_tools = false;  // the request brings none
  std::string input;
  OrderedJson expected;
};

inline std::string tool_call_folder() {
  return MLXX_TEST_DATA "/text/tool_calls";
}

inline std::string whole_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline const OrderedJson& corpus_tools() {
  static const OrderedJson tools = parse_ordered_json(
      whole_file(tool_call_folder() + "/tools.json"),
      "tools.json");
  return tools;
}

inline std::vector<ToolCallCase> tool_call_cases() {
  std::vector<ToolCallCase> cases;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(tool_call_folder())) {
    if (entry.path().extension() != ".txt") {
      continue;
    }
    std::istringstream lines(whole_file(entry.path()));
    std::string line;
    std::string json;
    bool in_input = false;
    auto finish = [&] {
      if (!json.empty()) {
        cases.back().expected = parse_ordered_json(json, cases.back().name);
        json.clear();
      }
    };
    while (std::getline(lines, line)) {
      if (line.starts_with(">>> ")) {
        finish();
        ToolCallCase one;
        one.format = entry.path().parent_path().filename();
        std::istringstream words(line.substr(4));
        words >> one.name;
        for (std::string word; words >> word;) {
          one.think |= word == "think" || word == "open";
          one.open |= word == "open";
          one.no_tools |= word == "no_tools";
        }
        cases.push_back(one);
        in_input = true;
      } else if (line == "<<<") {
        in_input = false;
        std::string& input = cases.back().input;
        if (!input.empty()) {
          input.pop_back();  // the line end before <<<
        }
      } else if (in_input) {
        cases.back().input += line + "\n";
      } else {
        json += line + "\n";
      }
    }
    finish();
  }
  return cases;
}

// What an answer comes to, however it was cut.
struct ParsedAnswer {
  std::string reasoning;
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;
  bool operator==(const ParsedAnswer&) const = default;

  void take(const AnswerPiece& piece) {
    reasoning += piece.reasoning;
    content += piece.content;
    for (const ToolCallPiece& call : piece.calls) {
      if (!call.name.empty()) {
        EXPECT_EQ(call.index, static_cast<int>(calls.size()));
        EXPECT_EQ(call.arguments, "");
        calls.emplace_back(call.name, "");
      } else {
        ASSERT_EQ(call.index + 1, static_cast<int>(calls.size()));
        calls.back().second += call.arguments;
      }
    }
  }
};

inline std::unique_ptr<AnswerParser> parser_of(const ToolCallCase& one) {
  std::optional<ReasoningFormat> reasoning;
  if (one.think) {
    reasoning = ReasoningFormat{"think", "<think>", "</think>"};
  }
  return tool_format_named(one.format)
      .make_parser(
          reasoning,
          one.open,
          one.no_tools ? OrderedJson() : corpus_tools());
}

// Fed in pieces that end at `cuts`.
inline ParsedAnswer parsed(
    const ToolCallCase& one,
    std::string_view input,
    const std::vector<size_t>& cuts) {
  auto parser = parser_of(one);
  ParsedAnswer answer;
  size_t from = 0;
  for (size_t cut : cuts) {
    answer.take(parser->step(input.substr(from, cut - from)));
    from = cut;
  }
  answer.take(parser->step(input.substr(from)));
  answer.take(parser->flush());
  return answer;
}

inline std::vector<size_t> every_byte(size_t size) {
  std::vector<size_t> cuts;
  for (size_t i = 1; i < size; ++i) {
    cuts.push_back(i);
  }
  return cuts;
}

inline std::vector<size_t> some_cuts(size_t size, std::mt19937& random) {
  std::vector<size_t> cuts;
  for (size_t i = 1; i < size; ++i) {
    if (random() % 7 == 0) {
      cuts.push_back(i);
    }
  }
  return cuts;
}

}  // namespace mlxx::text
