#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "mlxx/api/answer_state.h"
#include "mlxx/api/chat_choice.h"
#include "mlxx/api/chat_plan.h"
#include "mlxx/api/chat_request.h"
#include "mlxx/api/errors.h"
#include "mlxx/api/json_writer.h"
#include "mlxx/api/openai_usage.h"

namespace mlxx::api {

namespace {

class ChatAnswer : public OneRequestAnswer {
 public:
  ChatAnswer(ChatRequest request, const Context& context)
      : OneRequestAnswer(request.stream, std::move(request.ignored)),
        include_usage_(request.include_usage),
        model_(context.model->name),
        adapter_(request.plan.request.adapter),
        created_(context.unix_time),
        id_(context.make_id("chatcmpl-")),
        usage_(1) {
    const ChatPlan& plan = request.plan;
    for (int i = 0; i < plan.request.n; ++i) {
      choices_.emplace_back(
          plan.make_parser(),
          context.model->tokenizer,
          plan.request.top_logprobs.has_value(),
          context.make_id);
    }
    request_ = std::move(request.plan.request);
    request_.id = id_;
    chunk_envelope_ = envelope("chat.completion.chunk");
  }

  std::string begin() override {
    std::string out;
    for (size_t i = 0; stream_ && i < choices_.size(); ++i) {
      out += chunk(
          i,
          R"({"role":"assistant","content":"","refusal":null})",
          "null",
          "null");
    }
    return out;
  }

  std::string take(size_t, const engine::Event& event) override {
    if (has_failed(event)) {
      if (!failed_) {
        failed_ = *event.finish;
      }
      return "";
    }
    const auto index = static_cast<size_t>(event.choice);
    ChatChoice& choice = choices_.at(index);
    std::string out;
    for (const ChatChoice::Delta& delta : choice.take(event)) {
      if (stream_) {
        out += chunk(index, delta.delta, delta.logprobs, "null");
      }
    }
    if (event.finish) {
      usage_.add(0, event.finish->usage);
      if (stream_) {
        out += chunk(
            index,
            "{}",
            choice.take_logprobs(),
            fmt::format("\"{}\"", choice.finish_reason()));
      }
    }
    return out;
  }

  std::string end() override {
    if (!stream_) {
      return "";
    }
    std::string out;
    if (include_usage_) {
      out = fmt::format(
          "data: {},\"choices\":[],\"usage\":{}}}\n\n",
          chunk_envelope_,
          write_json(usage_.json()));
    }
    out += kSseDone;
    return out;
  }

  std::string body() override {
    if (failed_) {
      throw_finish(*failed_);
    }
    std::string choices;
    for (size_t i = 0; i < choices_.size(); ++i) {
      choices += fmt::format(
          R"({}{{"index":{},"message":{},"logprobs":{},"finish_reason":"{}"}})",
          i == 0 ? "" : ",",
          i,
          write_json(choices_[i].message()),
          choices_[i].all_logprobs(),
          choices_[i].finish_reason());
    }
    return fmt::format(
        R"({},"choices":[{}],"usage":{}}})",
        envelope("chat.completion"),
        choices,
        write_json(usage_.json()));
  }

  std::string failure(const Error& error) override {
    return openai_error_frame(describe_error(error));
  }

 private:
  // An object that is not closed yet.
  std::string envelope(const char* object) const {
    OrderedJson out = {
        {"id", id_},
        {"object", object},
        {"created", created_},
        {"model", model_},
        {"system_fingerprint", system_fingerprint()}};
    if (!adapter_.empty()) {
      out["adapters"] = adapter_;
    }
    std::string text = write_json(out);
    text.pop_back();
    return text;
  }

  // Every argument is JSON. Built as text, since there is one for every token.
  std::string chunk(
      size_t index,
      std::string_view delta,
      std::string_view logprobs,
      std::string_view finish_reason) const {
    return fmt::format(
        R"(data: {},"choices":[{{"index":{},"delta":{},"logprobs":{},)"
        R"("finish_reason":{}}}]{}}})"
        "\n\n",
        chunk_envelope_,
        index,
        delta,
        logprobs,
        finish_reason,
        include_usage_ ? R"(,"usage":null)" : "");
  }

  bool include_usage_;
  std::string model_;
  std::string adapter_;
  int64_t created_;
  std::string id_;
  std::string chunk_envelope_;
  std::vector<ChatChoice> choices_;
  UsageSum usage_;
  std::optional<engine::Finish> failed_;
};

}  // namespace

void throw_finish(const engine::Finish& finish) {
  if (finish.error) {
    // RequestError and Busy keep what they know.
    if (const auto* busy =
            dynamic_cast<const engine::Busy*>(finish.error.get())) {
      throw *busy;
    }
    if (const auto* request =
            dynamic_cast<const RequestError*>(finish.error.get())) {
      throw *request;
    }
    throw *finish.error;
  }
  fail(ErrorKind::cancelled, "engine", "the request was cancelled");
}

std::unique_ptr<Answer> answer_chat(
    const OrderedJson& body,
    const Context& context) {
  return std::make_unique<ChatAnswer>(read_chat(body, context), context);
}

}  // namespace mlxx::api
