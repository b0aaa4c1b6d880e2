#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "mlxx/text/tool_formats/argument_grammar.h"
#include "mlxx/text/tool_formats/declared_format.h"
#include "mlxx/text/tool_formats/json_call.h"
#include "mlxx/text/tool_formats/markup_scan.h"
#include "mlxx/text/tool_formats/tool_constraint.h"

// gpt-oss: an answer is a row of messages, each with a header that says its
// channel and to whom it goes (OpenAI's "harmony" format).
namespace mlxx::text {
namespace {

const std::vector<std::string>& control_tokens() {
  static const std::vector<std::string> tokens = {
      "<|start|>",
      "<|channel|>",
      "<|message|>",
      "<|constrain|>",
      "<|end|>",
      "<|call|>",
      "<|return|>"};
  return tokens;
}

constexpr size_t kLongestHeader = 512;

class HarmonyParser : public AnswerParser {
 public:
  HarmonyParser(bool reasoning_open, bool with_tools)
      : with_tools_(with_tools) {
    if (reasoning_open) {
      begin_body(Body::reasoning);
    }
  }

  AnswerPiece step(std::string_view text) override {
    AnswerPiece out;
    text_.append(text);
    advance(false, out);
    return out;
  }
  AnswerPiece flush() override {
    AnswerPiece out;
    advance(true, out);
    return out;
  }

 private:
  enum class Body { content, reasoning, call };

  void advance(bool last, AnswerPiece& out) {
    calls_.write_to(out);
    while (in_header_ ? read_header(last, out) : read_body(last, out)) {
    }
    if (last && calls_.open()) {
      // <|call|> ends generation and does not show.
      calls_.has_arguments() ? calls_.abandon() : calls_.end();
    }
  }

  bool read_header(bool last, AnswerPiece&) {
    std::string_view text = text_;
    if (text.empty()) {
      return false;
    }
    size_t end = text.find("<|message|>");
    // An answer without a header is content.
    size_t first = text.find_first_not_of(" \n");
    bool plausible = first == std::string_view::npos || !at_start_;
    for (std::string_view begin :
         {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "to="}) {
      plausible = plausible ||
          match_marker(text.substr(first), begin, last) != Match::no;
    }
    if (!plausible || std::min(end, text.size()) > kLongestHeader) {
      begin_body(Body::content);
      return true;
    }
    if (end == std::string_view::npos) {
      if (last) {
        text_.clear();  // markup only
      }
      return false;
    }
    std::string header(text.substr(0, end));
    text_.erase(0, end + std::string_view("<|message|>").size());
    std::string channel = word_behind(header, "<|channel|>");
    std::string to = word_behind(header, "to=");
    constexpr std::string_view kFunctions = "functions.";
    if (!to.empty() && with_tools_ && to != "user" && to != "assistant") {
      calls_.begin(
          to.starts_with(kFunctions) ? to.substr(kFunctions.size()) : to);
      begin_body(Body::call);
    } else {
      begin_body(
          channel == "analysis" && to.empty() ? Body::reasoning
                                              : Body::content);
    }
    return true;
  }

  static std::string word_behind(
      std::string_view header,
      std::string_view key) {
    size_t at = header.find(key);
    if (at == std::string_view::npos) {
      return "";
    }
    header.remove_prefix(at + key.size());
    return std::string(trim(header.substr(0, header.find_first_of(" \n<", 1))));
  }

  void begin_body(Body body) {
    in_header_ = false;
    at_start_ = false;
    body_ = body;
    body_began_ = false;
  }

  bool read_body(bool last, AnswerPiece& out) {
    static const std::vector<std::string> ends =
        {"<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"};
    Found found = find_marker(text_, ends, last, body_ == Body::call);
    std::string_view body = std::string_view(text_).substr(0, found.certain);
    give(body, out);
    if (found.at == std::string_view::npos) {
      text_.erase(0, found.certain);
      return false;
    }
    bool next_header =
        ends[found.which] == "<|start|>" || ends[found.which] == "<|channel|>";
    text_.erase(0, found.at + (next_header ? 0 : ends[found.which].size()));
    if (body_ == Body::call) {
      calls_.end();
    }
    in_header_ = true;
    return true;
  }

  void give(std::string_view body, AnswerPiece& out) {
    if (body.empty()) {
      return;
    }
    if (body_ == Body::call) {
      while (!body_began_ && !body.empty() && is_space(body.front())) {
        body.remove_prefix(1);
      }
      body_began_ |= !body.empty();
      calls_.raw(body);
      return;
    }
    bool thinks = body_ == Body::reasoning;
    std::string& to = thinks ? out.reasoning : out.content;
    bool& given = thinks ? reasoning_given_ : content_given_;
    // Messages of one kind are paragraphs.
    if (!body_began_ && given) {
      to += "\n\n";
    }
    body_began_ = given = true;
    to += body;
  }

  bool with_tools_;
  std::string text_;
  bool in_header_ = true;
  bool at_start_ = true;
  Body body_ = Body::content;
  bool body_began_ = false;
  bool content_given_ = false;
  bool reasoning_given_ = false;
  CallWriter calls_;
};

class HarmonyFormat : public ToolFormat {
 public:
  std::string_view name() const override {
    return "harmony";
  }
  std::vector<std::string> visible_tokens() const override {
    return control_tokens();
  }
  std::unique_ptr<AnswerParser> make_parser(
      const std::optional<ReasoningFormat>&,
      bool reasoning_open,
      const OrderedJson& tools) const override {
    return std::make_unique<HarmonyParser>(
        reasoning_open,
        tools.is_array() && !tools.empty());
  }

  std::optional<std::string> constraint(const ToolUse& use) const override {
    std::optional<std::vector<ConstrainedTool>> tools = constrained_tools(use);
    if (!tools) {
      return std::nullopt;
    }
    LarkWriter lark(use.tokenizer);
    auto call = [](LarkWriter& writer, const ConstrainedTool& tool) {
      return fmt::format(
          "{} {}",
          writer.literal(
              "<|channel|>commentary to=functions." + tool.name +
              " <|constrain|>json<|message|>"),
          json_arguments(writer, tool));
    };
    std::string calls = one_of_the_tools(lark, *tools, call);
    // Reasoning may have ended before, or come now.
    std::string reasoning = lark.fresh("reasoning");
    lark.rule(
        reasoning,
        fmt::format(
            "{} {} {}",
            lark.literal("<|channel|>analysis<|message|>"),
            lark.any_up_to("<|end|>"),
            lark.literal("<|start|>assistant")));
    std::string last = calls;
    if (use.choice == ToolChoice::automatic) {
      std::string text = lark.fresh("TEXT");
      lark.rule(text, "/(?s:.*)/");
      std::string answer = lark.fresh("answer");
      lark.rule(
          answer,
          fmt::format(
              "{} {}",
              lark.literal("<|channel|>final<|message|>"),
              text));
      last = fmt::format("({} | {})", calls, answer);
    }
    std::string start = lark.literal("<|start|>assistant");
    lark.rule("start", fmt::format("({})? {}* {}", start, reasoning, last));
    return lark.grammar();
  }
};

}  // namespace

std::unique_ptr<ToolFormat> make_harmony_format() {
  return std::make_unique<HarmonyFormat>();
}

bool teaches_harmony(std::string_view template_source) {
  return has(template_source, "<|channel|>") &&
      has(template_source, "<|message|>");
}

}  // namespace mlxx::text
