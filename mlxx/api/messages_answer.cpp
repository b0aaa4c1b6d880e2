#include <nlohmann/json.hpp>

#include "mlxx/api/answer_segments.h"
#include "mlxx/api/answer_state.h"
#include "mlxx/api/anthropic_errors.h"
#include "mlxx/api/anthropic_messages.h"
#include "mlxx/api/errors.h"
#include "mlxx/api/json_writer.h"
#include "mlxx/api/messages_request.h"

namespace mlxx::api {

namespace {

// Content blocks and the events that make them.
class MessagesContent {
 public:
  MessagesContent(
      bool omits_thinking,
      std::function<std::string(std::string_view)> make_id)
      : omits_thinking_(omits_thinking), make_id_(std::move(make_id)) {}

  std::vector<OrderedJson> take(const std::vector<SegmentStep>& steps) {
    for (const SegmentStep& step : steps) {
      switch (step.what) {
        case SegmentStep::What::begin:
          begin(step);
          break;
        case SegmentStep::What::append:
          append(step);
          break;
        case SegmentStep::What::end:
          end(step.kind);
          break;
      }
    }
    return std::move(events_);
  }

  // An answer has a block at least.
  std::vector<OrderedJson> finish() {
    if (blocks_.empty()) {
      add_text("");
    }
    return std::move(events_);
  }

  const OrderedJson& blocks() const {
    return blocks_;
  }
  bool has_calls() const {
    return has_calls_;
  }

 private:
  void begin(const SegmentStep& step) {
    text_.clear();
    if (step.kind == SegmentKind::call) {
      // Held back until it is complete: clients parse what they get.
      name_ = step.text;
    } else if (step.kind == SegmentKind::reasoning) {
      start({{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
    } else {
      start({{"type", "text"}, {"text", ""}});
    }
  }

  void append(const SegmentStep& step) {
    text_ += step.text;
    if (step.kind == SegmentKind::text) {
      delta({{"type", "text_delta"}, {"text", step.text}});
    } else if (step.kind == SegmentKind::reasoning && !omits_thinking_) {
      delta({{"type", "thinking_delta"}, {"thinking", step.text}});
    }
  }

  void end(SegmentKind kind) {
    if (kind == SegmentKind::call) {
      end_call();
      return;
    }
    if (kind == SegmentKind::text) {
      blocks_.back()["text"] = text_;
    } else {
      std::string signature = thinking_signature(text_, omits_thinking_);
      delta({{"type", "signature_delta"}, {"signature", signature}});
      blocks_.back()["thinking"] = omits_thinking_ ? "" : text_;
      blocks_.back()["signature"] = std::move(signature);
    }
    stop();
  }

  // A call whose input is no JSON object, such as one that max_tokens cut off,
  // is given as the text that it is.
  void end_call() {
    OrderedJson input;
    try {
      input = parse_ordered_json(text_.empty() ? "{}" : text_, "arguments");
    } catch (const Error&) {
    }
    if (!input.is_object()) {
      add_text(fmt::format(
          R"({{"name": {}, "arguments": {})",
          write_json(name_),
          text_));
      return;
    }
    has_calls_ = true;
    OrderedJson block = {
        {"type", "tool_use"},
        {"id", make_id_("toolu_")},
        {"name", name_},
        {"input", OrderedJson::object()}};
    start(std::move(block));
    delta({{"type", "input_json_delta"}, {"partial_json", ""}});
    if (!input.empty()) {
      delta({{"type", "input_json_delta"}, {"partial_json", text_}});
    }
    blocks_.back()["input"] = std::move(input);
    stop();
  }

  void add_text(std::string text) {
    start({{"type", "text"}, {"text", ""}});
    if (!text.empty()) {
      delta({{"type", "text_delta"}, {"text", text}});
    }
    blocks_.back()["text"] = std::move(text);
    stop();
  }

  void start(OrderedJson block) {
    OrderedJson event = {
        {"type", "content_block_start"},
        {"index", blocks_.size()}};
    event["content_block"] = block;
    events_.push_back(std::move(event));
    blocks_.push_back(std::move(block));
  }

  void delta(OrderedJson delta) {
    OrderedJson event = {
        {"type", "content_block_delta"},
        {"index", blocks_.size() - 1}};
    event["delta"] = std::move(delta);
    events_.push_back(std::move(event));
  }

  void stop() {
    events_.push_back(
        {{"type", "content_block_stop"}, {"index", blocks_.size() - 1}});
  }

  bool omits_thinking_;
  std::function<std::string(std::string_view)> make_id_;
  OrderedJson blocks_ = OrderedJson::array();
  std::vector<OrderedJson> events_;
  std::string text_;  // of the open stretch
  std::string name_;  // of the open call
  bool has_calls_ = false;
};

class MessagesAnswer : public OneRequestAnswer {
 public:
  MessagesAnswer(MessagesRequest request, const Context& context)
      : OneRequestAnswer(request.stream, std::move(request.ignored)),
        model_(context.model->name),
        id_(context.make_id("msg_")),
        input_tokens_(static_cast<int>(request.plan.request.prompt.size())),
        fills_context_(request.fills_context),
        segments_(request.plan.make_parser()),
        content_(request.thinking_omitted, context.make_id) {
    request_ = std::move(request.plan.request);
    request_.id = id_;
  }

  std::string begin() override {
    if (!stream_) {
      return "";
    }
    OrderedJson message = envelope();
    message["content"] = OrderedJson::array();
    message["stop_reason"] = nullptr;
    message["stop_sequence"] = nullptr;
    message["usage"] = usage({});
    return sse_frame(
               {{"type", "message_start"}, {"message", std::move(message)}},
               "message_start") +
        sse_frame({{"type", "ping"}}, "ping");
  }

  std::string take(size_t, const engine::Event& event) override {
    if (has_failed(event)) {
      if (!failed_) {
        failed_ = *event.finish;
      }
      return "";
    }
    std::string out = frames(content_.take(segments_.step(event.text)));
    if (event.finish) {
      finish_ = *event.finish;
      out += frames(content_.take(segments_.flush()));
      out += frames(content_.finish());
    }
    return out;
  }

  std::string end() override {
    if (!stream_) {
      return "";
    }
    OrderedJson delta = {
        {"type", "message_delta"},
        {"delta",
         {{"stop_reason", stop_reason()}, {"stop_sequence", stop_sequence()}}}};
    delta["usage"] = usage(finish_.usage);
    return sse_frame(delta, "message_delta") +
        sse_frame({{"type", "message_stop"}}, "message_stop");
  }

  std::string body() override {
    if (failed_) {
      throw_finish(*failed_);
    }
    OrderedJson message = envelope();
    message["content"] = content_.blocks();
    message["stop_reason"] = stop_reason();
    message["stop_sequence"] = stop_sequence();
    message["usage"] = usage(finish_.usage);
    return write_json(message);
  }

  std::string failure(const Error& error) override {
    return anthropic_error_frame(describe_error(error), id_);
  }

 private:
  OrderedJson envelope() const {
    return {
        {"id", id_},
        {"type", "message"},
        {"role", "assistant"},
        {"model", model_}};
  }

  // Without events there are no frames.
  std::string frames(const std::vector<OrderedJson>& events) const {
    std::string out;
    if (stream_) {
      for (const OrderedJson& event : events) {
        out += sse_frame(event, event["type"].get<std::string>());
      }
    }
    return out;
  }

  // The prompt is input_tokens and cache_read_input_tokens together.
  OrderedJson usage(const engine::Usage& used) const {
    return {
        {"input_tokens", input_tokens_ - used.cached_tokens},
        {"cache_creation_input_tokens", 0},
        {"cache_read_input_tokens", used.cached_tokens},
        {"output_tokens", used.completion_tokens},
        {"output_tokens_details",
         {{"thinking_tokens", used.reasoning_tokens}}}};
  }

  std::string_view stop_reason() const {
    if (finish_.reason == engine::FinishReason::length) {
      return fills_context_ ? "model_context_window_exceeded" : "max_tokens";
    }
    if (!finish_.stop_sequence.empty()) {
      return "stop_sequence";
    }
    return content_.has_calls() ? "tool_use" : "end_turn";
  }

  OrderedJson stop_sequence() const {
    const bool stopped = stop_reason() == "stop_sequence";
    return stopped ? OrderedJson(finish_.stop_sequence) : OrderedJson();
  }

  std::string model_;
  std::string id_;
  int input_tokens_;
  bool fills_context_;
  AnswerSegments segments_;
  MessagesContent content_;
  engine::Finish finish_;
  std::optional<engine::Finish> failed_;
};

}  // namespace

std::unique_ptr<Answer> answer_messages(
    const OrderedJson& body,
    const Context& context) {
  return std::make_unique<MessagesAnswer>(
      read_messages_request(body, context),
      context);
}

}  // namespace mlxx::api
