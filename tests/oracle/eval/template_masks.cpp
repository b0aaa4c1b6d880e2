// Of every published template of a folder: whether the answers of
// conversations are found, each whole and without anything that others said.
// template_masks FOLDER
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/data/answer_spans.h"
#include "mlxx/text/chat_template.h"

namespace mlxx::data {
namespace {

constexpr const char* kMark = "\xEF\xB7\x90";

const char* const kTalks[] = {
    R"([{"role": "user", "content": "ZQ-ASKED one"},
        {"role": "assistant", "content": "ZQ-SAID one"},
        {"role": "user", "content": "ZQ-ASKED two"},
        {"role": "assistant", "content": "ZQ-SAID two"},
        {"role": "user", "content": "ZQ-ASKED three"},
        {"role": "assistant", "content": "ZQ-SAID three"}])",
    R"([{"role": "user", "content": "ZQ-ASKED one"},
        {"role": "assistant", "content": "ZQ-SAID one",
         "reasoning_content": "ZQ-THOUGHT one"},
        {"role": "user", "content": "ZQ-ASKED two"},
        {"role": "assistant", "content": "ZQ-SAID two",
         "reasoning_content": "ZQ-THOUGHT two"}])",
    R"([{"role": "user", "content": "ZQ-ASKED one"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "call00001",
         "type": "function", "function": {"name": "look",
         "arguments": {"ZQ-SAID": "call"}}}]},
        {"role": "tool", "tool_call_id": "call00001", "name": "look",
         "content": "ZQ-ASKED result"},
        {"role": "assistant", "content": "ZQ-SAID two"},
        {"role": "user", "content": "ZQ-ASKED three"},
        {"role": "assistant", "content": "ZQ-SAID three"}])"};

size_t count_of(std::string_view text, std::string_view word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != text.npos;
       at = text.find(word, at + 1)) {
    ++count;
  }
  return count;
}

struct Counts {
  int seen = 0;       // conversations that a template takes
  int not_found = 0;  // of which it hides where an answer is
};

// What is wrong; "" if nothing is.
std::string check(
    const text::ChatTemplate& chat_template,
    const char* talk,
    Counts& counts) {
  OrderedJson tools = OrderedJson::parse(
      R"([{"type": "function", "function": {"name": "look", "description":
          "d", "parameters": {"type": "object", "properties": {"q":
          {"type": "string"}}, "required": []}}}])");
  OrderedJson messages =
      text::normalize_messages(parse_ordered_json(talk, "talk"));
  ConversationTemplate with{
      .chat_template = chat_template,
      .unix_time = 1'700'000'000,
      .mark = kMark};
  RenderedConversation rendered;
  try {
    rendered = render_conversation(with, messages, tools, 0);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::unsupported) {
      ++counts.not_found;
      return "";
    }
    return error.kind() == ErrorKind::invalid_request ? "" : error.what();
  }
  ++counts.seen;
  std::string targets;
  for (const auto& span : rendered.answers) {
    std::string text = rendered.text.substr(span.begin, span.end - span.begin);
    targets += text + "\n---\n";
  }
  if (count_of(targets, "ZQ-ASKED") > 0) {
    return "others' words are targets:\n" + targets;
  }
  if (count_of(targets, "ZQ-SAID") != count_of(rendered.text, "ZQ-SAID") ||
      count_of(targets, "ZQ-THOUGHT") !=
          count_of(rendered.text, "ZQ-THOUGHT")) {
    return "a part of an answer is no target:\n" + targets + "\nof\n" +
        rendered.text;
  }
  return "";
}

int run(const std::filesystem::path& folder) {
  int templates = 0;
  int wrong = 0;
  Counts counts;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") {
      continue;
    }
    ++templates;
    std::shared_ptr<const text::ChatTemplate> chat_template;
    try {
      chat_template =
          text::ChatTemplate::compile(read_file(entry.path()), "<s>", "</s>");
    } catch (const Error&) {
      continue;
    }
    for (const char* talk : kTalks) {
      std::string error = check(*chat_template, talk, counts);
      if (!error.empty()) {
        ++wrong;
        fmt::print("{}: {}\n\n", entry.path().filename().string(), error);
      }
    }
  }
  fmt::print(
      "{} templates, {} conversations, {} wrong, {} with hidden answers\n",
      templates,
      counts.seen,
      wrong,
      counts.not_found);
  bool enough = templates > 50 && counts.seen > 2 * templates;
  return enough && wrong == 0 && counts.not_found <= 2 ? 0 : 1;
}

}  // namespace
}  // namespace mlxx::data

int main(int argc, char** argv) {
  return argc == 2 ? mlxx::data::run(argv[1]) : 2;
}
