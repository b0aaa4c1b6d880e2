#include <cmath>

#include <nlohmann/json.hpp>

#include "mlxx/api/answer_segments.h"
#include "mlxx/api/answer_state.h"
#include "mlxx/api/carried_text.h"
#include "mlxx/api/errors.h"
#include "mlxx/api/json_writer.h"
#include "mlxx/api/response_input.h"
#include "mlxx/api/response_request.h"
#include "mlxx/api/token_logprobs.h"
#include "mlxx/base/log.h"

namespace mlxx::api {

namespace {

using MakeId = std::function<std::string(std::string_view prefix)>;
using Events = std::vector<OrderedJson>;

// Output items and the events that make them.
class ResponseOutput {
 public:
  ResponseOutput(const ResponseRequest& request, MakeId make_id)
      : summary_(request.summary),
        encrypted_(request.encrypted),
        make_id_(std::move(make_id)) {}

  // `logprobs`: of the tokens since the last call; those of text stay.
  Events take(const std::vector<SegmentStep>& steps, OrderedJson logprobs) {
    fresh_ = logprobs.size();
    for (OrderedJson& logprob : logprobs) {
      waiting_.push_back(std::move(logprob));
    }
    for (const SegmentStep& step : steps) {
      switch (step.what) {
        case SegmentStep::What::begin:
          begin(step);
          break;
        case SegmentStep::What::append:
          append(step);
          break;
        case SegmentStep::What::end:
          end(step.kind, "completed");
          break;
      }
    }
    const bool in_text =
        !steps.empty() && steps.back().kind == SegmentKind::text;
    if (!steps.empty() && !in_text) {
      waiting_ = OrderedJson::array();
    }
    return std::move(events_);
  }

  // Ends what take() left open: `steps` are the last ones of the answer. An
  // answer has an item at least.
  Events finish(std::vector<SegmentStep> steps, std::string_view status) {
    const bool is_open =
        !steps.empty() && steps.back().what == SegmentStep::What::end;
    const SegmentKind kind = is_open ? steps.back().kind : SegmentKind::text;
    if (is_open) {
      steps.pop_back();
    }
    Events out = take(steps, OrderedJson::array());
    if (is_open) {
      end(kind, status);
    } else if (items_.empty()) {
      begin({SegmentStep::What::begin, SegmentKind::text, ""});
      end(SegmentKind::text, status);
    }
    out.insert(out.end(), events_.begin(), events_.end());
    events_.clear();
    return out;
  }

  const OrderedJson& items() const {
    return items_;
  }

 private:
  void begin(const SegmentStep& step) {
    text_.clear();
    logprobs_ = OrderedJson::array();
    switch (step.kind) {
      case SegmentKind::reasoning:
        add_item(
            {{"id", make_id_("rs_")},
             {"type", "reasoning"},
             {"status", "in_progress"},
             {"summary", OrderedJson::array()}});
        if (summary_) {
          part_event("response.reasoning_summary_part.added", summary_part());
        } else {
          part_event("response.content_part.added", reasoning_part());
        }
        break;
      case SegmentKind::text:
        if (!items_.empty()) {
          forget_markup();
        }
        add_item(
            {{"id", make_id_("msg_")},
             {"type", "message"},
             {"status", "in_progress"},
             {"role", "assistant"},
             {"content", OrderedJson::array()}});
        part_event("response.content_part.added", text_part());
        break;
      case SegmentKind::call:
        add_item(
            {{"id", make_id_("fc_")},
             {"type", "function_call"},
             {"status", "in_progress"},
             {"call_id", make_id_("call_")},
             {"name", step.text},
             {"arguments", ""}});
        break;
    }
  }

  void append(const SegmentStep& step) {
    text_ += step.text;
    OrderedJson event;
    switch (step.kind) {
      case SegmentKind::reasoning:
        event = summary_
            ? item_event(
                  "response.reasoning_summary_text.delta",
                  "summary_index")
            : item_event("response.reasoning_text.delta", "content_index");
        break;
      case SegmentKind::text:
        event = item_event("response.output_text.delta", "content_index");
        break;
      case SegmentKind::call:
        event = item_event("response.function_call_arguments.delta", "");
        break;
    }
    event["delta"] = step.text;
    if (step.kind == SegmentKind::text) {
      event["logprobs"] = take_logprobs();
    }
    events_.push_back(std::move(event));
  }

  void end(SegmentKind kind, std::string_view status) {
    OrderedJson& item = items_.back();
    item["status"] = status;
    switch (kind) {
      case SegmentKind::reasoning:
        end_reasoning(item);
        break;
      case SegmentKind::text:
        end_text(item);
        break;
      case SegmentKind::call: {
        item["arguments"] = text_;
        OrderedJson event =
            item_event("response.function_call_arguments.done", "");
        event["name"] = item["name"];
        event["arguments"] = text_;
        events_.push_back(std::move(event));
        break;
      }
    }
    OrderedJson event = {
        {"type", "response.output_item.done"},
        {"output_index", items_.size() - 1}};
    event["item"] = item;
    events_.push_back(std::move(event));
  }

  void end_reasoning(OrderedJson& item) {
    OrderedJson event = summary_
        ? item_event("response.reasoning_summary_text.done", "summary_index")
        : item_event("response.reasoning_text.done", "content_index");
    event["text"] = text_;
    events_.push_back(std::move(event));
    if (summary_) {
      item["summary"] = OrderedJson::array({summary_part()});
      part_event("response.reasoning_summary_part.done", summary_part());
    } else {
      item["content"] = OrderedJson::array({reasoning_part()});
      part_event("response.content_part.done", reasoning_part());
    }
    if (encrypted_) {
      item["encrypted_content"] = carry_text(text_);
    }
  }

  void end_text(OrderedJson& item) {
    // Tokens without a text of their own come with the whole.
    take_logprobs();
    OrderedJson event =
        item_event("response.output_text.done", "content_index");
    event["text"] = text_;
    event["logprobs"] = logprobs_;
    events_.push_back(std::move(event));
    part_event("response.content_part.done", text_part());
    item["content"] = OrderedJson::array({text_part()});
  }

  OrderedJson text_part() const {
    return {
        {"type", "output_text"},
        {"text", text_},
        {"annotations", OrderedJson::array()},
        {"logprobs", logprobs_}};
  }
  OrderedJson reasoning_part() const {
    return {{"type", "reasoning_text"}, {"text", text_}};
  }
  OrderedJson summary_part() const {
    return {{"type", "summary_text"}, {"text", text_}};
  }

  void add_item(OrderedJson item) {
    OrderedJson event = {
        {"type", "response.output_item.added"},
        {"output_index", items_.size()}};
    event["item"] = item;
    events_.push_back(std::move(event));
    items_.push_back(std::move(item));
  }

  // An event of the last item; `index` names the index of its only part.
  OrderedJson item_event(const char* type, const char* index) const {
    OrderedJson event = {
        {"type", type},
        {"item_id", items_.back()["id"]},
        {"output_index", items_.size() - 1}};
    if (*index != '\0') {
      event[index] = 0;
    }
    return event;
  }

  void part_event(const char* type, OrderedJson part) {
    const bool is_summary = part["type"] == "summary_text";
    OrderedJson event =
        item_event(type, is_summary ? "summary_index" : "content_index");
    event["part"] = std::move(part);
    events_.push_back(std::move(event));
  }

  // Tokens that closed what came before this text are not of it.
  void forget_markup() {
    while (waiting_.size() > fresh_) {
      waiting_.erase(0);
    }
  }

  OrderedJson take_logprobs() {
    OrderedJson out = std::move(waiting_);
    waiting_ = OrderedJson::array();
    for (const OrderedJson& logprob : out) {
      logprobs_.push_back(logprob);
    }
    return out;
  }

  bool summary_;
  bool encrypted_;
  MakeId make_id_;
  OrderedJson items_ = OrderedJson::array();
  Events events_;
  std::string text_;                             // of the open item
  OrderedJson logprobs_ = OrderedJson::array();  // of the open item
  OrderedJson waiting_ = OrderedJson::array();   // no delta brought them yet
  size_t fresh_ = 0;                             // of those, from this event
};

std::string_view failure_code(const ErrorReply& reply) {
  return reply.status == 429 ? "rate_limit_exceeded"
      : reply.status < 500   ? "invalid_prompt"
                             : "server_error";
}

class ResponseAnswer : public OneRequestAnswer {
 public:
  ResponseAnswer(ResponseRequest request, const Context& context)
      : OneRequestAnswer(request.stream, request.ignored),
        output_(request, context.make_id),
        segments_(request.plan.make_parser()),
        tokenizer_(context.model->tokenizer),
        store_(request.store ? context.store : nullptr),
        model_(context.model->name),
        id_(context.make_id("resp_")),
        created_(context.unix_time),
        given_(std::move(request)) {
    request_ = std::move(given_.plan.request);
    request_.id = id_;
  }

  std::string begin() override {
    if (!stream_) {
      return "";
    }
    const OrderedJson response = object("in_progress", OrderedJson::array());
    std::string out = response_event("response.created", response);
    return out + response_event("response.in_progress", response);
  }

  std::string take(size_t, const engine::Event& event) override {
    if (has_failed(event)) {
      if (!failed_) {
        failed_ = *event.finish;
      }
      return "";
    }
    OrderedJson logprobs = OrderedJson::array();
    if (logprobs_) {
      for (const engine::AnswerToken& token : event.tokens) {
        logprobs.push_back(chat_logprob(token, *tokenizer_));
      }
    }
    std::string out =
        frames(output_.take(segments_.step(event.text), std::move(logprobs)));
    if (event.finish) {
      finish_ = *event.finish;
      out += frames(output_.finish(segments_.flush(), status()));
    }
    return out;
  }

  std::string end() override {
    if (!stream_) {
      return "";
    }
    return response_event(
        status() == "completed" ? "response.completed" : "response.incomplete",
        finished());
  }

  std::string body() override {
    if (failed_) {
      throw_finish(*failed_);
    }
    return write_json(finished());
  }

  std::string failure(const Error& error) override {
    const ErrorReply reply = describe_error(error);
    OrderedJson response = object("failed", output_.items());
    response["error"] = {
        {"code", failure_code(reply)},
        {"message", reply.message}};
    return response_event("response.failed", response);
  }

 private:
  std::string_view status() const {
    return finish_.reason == engine::FinishReason::length ? "incomplete"
                                                          : "completed";
  }

  OrderedJson object(std::string_view status, OrderedJson output) const {
    OrderedJson out = {
        {"id", id_},
        {"object", "response"},
        {"created_at", created_},
        {"status", status},
        {"background", false},
        {"error", nullptr},
        {"incomplete_details", nullptr},
        {"model", model_},
        {"store", store_ != nullptr}};
    out.update(*given_.echo);
    out["output"] = std::move(output);
    out["usage"] = nullptr;
    return out;
  }

  // The whole response; stores it, so that its client can count on that.
  OrderedJson finished() {
    const engine::Usage& used = finish_.usage;
    OrderedJson out = object(status(), output_.items());
    if (status() == "incomplete") {
      out["incomplete_details"] = {{"reason", "max_output_tokens"}};
    } else {
      const double seconds =
          used.queue_seconds + used.prefill_seconds + used.decode_seconds;
      out["completed_at"] = created_ + std::llround(seconds);
    }
    out["usage"] = {
        {"input_tokens", used.prompt_tokens},
        {"input_tokens_details",
         {{"cached_tokens", used.cached_tokens}, {"cache_write_tokens", 0}}},
        {"output_tokens", used.completion_tokens},
        {"output_tokens_details",
         {{"reasoning_tokens", used.reasoning_tokens}}},
        {"total_tokens", used.prompt_tokens + used.completion_tokens}};
    if (store_) {
      put(out);
    }
    return out;
  }

  // An answer that cannot be stored is still an answer, and says so.
  void put(OrderedJson& response) {
    StoredResponse stored;
    stored.id = id_;
    stored.previous_id = given_.previous_id;
    stored.response = write_json(response);
    stored.input = write_json(*given_.input);
    stored.items = item_ids(*given_.input);
    for (std::string& id : item_ids(output_.items())) {
      stored.items.push_back(std::move(id));
    }
    try {
      store_->put(stored, created_);
    } catch (const Error& error) {
      log_warning("response {} is not stored: {}", id_, error.what());
      response["store"] = false;
    }
  }

  std::string frames(const Events& events) {
    std::string out;
    if (stream_) {
      for (const OrderedJson& event : events) {
        out += frame(event);
      }
    }
    return out;
  }

  std::string response_event(const char* type, OrderedJson response) {
    OrderedJson event = {{"type", type}};
    event["response"] = std::move(response);
    return frame(event);
  }

  std::string frame(OrderedJson event) {
    const std::string type = event["type"];
    event["sequence_number"] = sequence_number_++;
    return sse_frame(event, type);
  }

  ResponseOutput output_;
  AnswerSegments segments_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  ResponseStore* store_;
  std::string model_;
  std::string id_;
  int64_t created_;
  ResponseRequest given_;
  bool logprobs_ = given_.plan.request.top_logprobs.has_value();
  engine::Finish finish_;
  std::optional<engine::Finish> failed_;
  int64_t sequence_number_ = 0;
};

}  // namespace

std::unique_ptr<Answer> answer_response(
    const OrderedJson& body,
    const Context& context) {
  return std::make_unique<ResponseAnswer>(
      read_response_request(body, context),
      context);
}

}  // namespace mlxx::api
