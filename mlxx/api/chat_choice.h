#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/engine/request.h"
#include "mlxx/text/answer_parser.h"
#include "mlxx/text/tokenizer.h"

namespace mlxx::api {

// One choice of a chat: what the engine says of it, divided into reasoning,
// content and calls.
class ChatChoice {
 public:
  // `parser` may be null: then all text is content. `make_id` names calls.
  ChatChoice(
      std::unique_ptr<text::AnswerParser> parser,
      std::shared_ptr<const text::Tokenizer> tokenizer,
      bool logprobs,
      std::function<std::string(std::string_view)> make_id);

  // A delta of OpenAI's stream and the log-probabilities that come with it
  // ("null" or an object), as JSON.
  struct Delta {
    std::string delta;
    std::string logprobs;
  };
  // Takes the next event. Returns what it adds to the stream; its
  // log-probabilities come with the first delta, or with that of a later event.
  std::vector<Delta> take(const engine::Event& event);
  // Of the finishing chunk: log-probabilities that no delta brought.
  std::string take_logprobs();

  bool finished() const {
    return finished_;
  }
  // "stop", "length" or "tool_calls"; once finished.
  std::string_view finish_reason() const;
  // The whole message, and all log-probabilities, as JSON.
  OrderedJson message() const;
  std::string all_logprobs() const;

 private:
  struct Call {
    std::string id;
    std::string name;
    std::string arguments;
  };

  void add_piece(text::AnswerPiece piece, std::vector<Delta>& out);
  void add_call(const text::ToolCallPiece& piece, std::vector<Delta>& out);
  void close_calls(std::vector<Delta>& out);

  std::unique_ptr<text::AnswerParser> parser_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  bool logprobs_;
  std::function<std::string(std::string_view)> make_id_;
  std::string reasoning_;
  std::string content_;
  std::vector<Call> calls_;
  std::string waiting_;       // "{...},{...}" that no delta brought yet
  std::string all_logprobs_;  // the same of the whole answer
  bool finished_ = false;
  engine::FinishReason reason_ = engine::FinishReason::stop;
};

}  // namespace mlxx::api
