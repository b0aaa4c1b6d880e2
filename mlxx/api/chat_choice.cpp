#include "mlxx/api/chat_choice.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "mlxx/api/json_writer.h"
#include "mlxx/api/token_logprobs.h"

namespace mlxx::api {

namespace {

std::string logprobs_object(const std::string& items) {
  return items.empty()
      ? "null"
      : fmt::format(R"({{"content":[{}],"refusal":null}})", items);
}

std::string text_delta(const char* name, const std::string& text) {
  OrderedJson delta = OrderedJson::object();
  delta[name] = text;
  return write_json(delta);
}

}  // namespace

ChatChoice::ChatChoice(
    std::unique_ptr<text::AnswerParser> parser,
    std::shared_ptr<const text::Tokenizer> tokenizer,
    bool logprobs,
    std::function<std::string(std::string_view)> make_id)
    : parser_(std::move(parser)),
      tokenizer_(std::move(tokenizer)),
      logprobs_(logprobs),
      make_id_(std::move(make_id)) {}

void ChatChoice::add_call(
    const text::ToolCallPiece& piece,
    std::vector<Delta>& out) {
  const auto index = static_cast<size_t>(piece.index);
  if (index >= calls_.size()) {
    calls_.resize(index + 1);
  }
  Call& call = calls_[index];
  OrderedJson delta = {{"index", piece.index}};
  OrderedJson function = OrderedJson::object();
  if (call.id.empty()) {
    call.id = make_id_("call_");
    call.name = piece.name;
    delta["id"] = call.id;
    delta["type"] = "function";
    function["name"] = call.name;
  }
  call.arguments += piece.arguments;
  function["arguments"] = piece.arguments;
  delta["function"] = std::move(function);
  OrderedJson calls = OrderedJson::array();
  calls.push_back(std::move(delta));
  OrderedJson whole = OrderedJson::object();
  whole["tool_calls"] = std::move(calls);
  out.push_back({write_json(whole), "null"});
}

// Arguments are JSON, also of calls that were written without any.
void ChatChoice::close_calls(std::vector<Delta>& out) {
  if (reason_ == engine::FinishReason::length) {
    return;
  }
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (calls_[i].arguments.empty()) {
      add_call({static_cast<int>(i), "", "{}"}, out);
    }
  }
}

void ChatChoice::add_piece(text::AnswerPiece piece, std::vector<Delta>& out) {
  if (!piece.reasoning.empty()) {
    reasoning_ += piece.reasoning;
    out.push_back({text_delta("reasoning_content", piece.reasoning), "null"});
  }
  if (!piece.content.empty()) {
    content_ += piece.content;
    out.push_back({text_delta("content", piece.content), "null"});
  }
  for (const text::ToolCallPiece& call : piece.calls) {
    add_call(call, out);
  }
}

std::vector<ChatChoice::Delta> ChatChoice::take(const engine::Event& event) {
  std::vector<Delta> out;
  if (logprobs_) {
    for (const engine::AnswerToken& token : event.tokens) {
      const std::string one = write_json(chat_logprob(token, *tokenizer_));
      for (std::string* list : {&waiting_, &all_logprobs_}) {
        *list += list->empty() ? "" : ",";
        *list += one;
      }
    }
  }
  if (event.finish) {
    finished_ = true;
    reason_ = event.finish->reason;
  }
  if (!parser_) {
    text::AnswerPiece piece;
    piece.content = event.text;
    add_piece(std::move(piece), out);
  } else {
    if (!event.text.empty()) {
      add_piece(parser_->step(event.text), out);
    }
    if (finished_) {
      add_piece(parser_->flush(), out);
      close_calls(out);
    }
  }
  if (!out.empty() && !waiting_.empty()) {
    out.front().logprobs = take_logprobs();
  }
  return out;
}

std::string ChatChoice::take_logprobs() {
  return logprobs_object(std::exchange(waiting_, {}));
}

std::string_view ChatChoice::finish_reason() const {
  if (reason_ == engine::FinishReason::length) {
    return "length";
  }
  return calls_.empty() ? "stop" : "tool_calls";
}

OrderedJson ChatChoice::message() const {
  OrderedJson out = {{"role", "assistant"}};
  // Beside calls, OpenAI has null for no content.
  out["content"] = content_.empty() && !calls_.empty() ? OrderedJson(nullptr)
                                                       : OrderedJson(content_);
  out["refusal"] = nullptr;
  if (!reasoning_.empty()) {
    out["reasoning_content"] = reasoning_;
  }
  if (!calls_.empty()) {
    OrderedJson calls = OrderedJson::array();
    for (const Call& call : calls_) {
      calls.push_back(
          {{"id", call.id},
           {"type", "function"},
           {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    out["tool_calls"] = std::move(calls);
  }
  return out;
}

std::string ChatChoice::all_logprobs() const {
  return logprobs_object(all_logprobs_);
}

}  // namespace mlxx::api
