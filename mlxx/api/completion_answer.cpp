#include <climits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "mlxx/api/answer_state.h"
#include "mlxx/api/errors.h"
#include "mlxx/api/generation_fields.h"
#include "mlxx/api/json_writer.h"
#include "mlxx/api/openai_usage.h"
#include "mlxx/api/prompt_inputs.h"
#include "mlxx/api/response_constraint.h"
#include "mlxx/api/token_logprobs.h"

namespace mlxx::api {

namespace {

struct CompletionRequest {
  std::vector<engine::Request> requests;  // one for each prompt
  std::vector<std::string> echoes;        // their texts, if they are echoed
  int n = 1;
  bool stream = false;
  bool include_usage = false;
  std::optional<int> logprobs;
  std::vector<std::string> ignored;
};

std::optional<int> read_max_tokens(const FieldReader& fields) {
  const auto value = fields.integer("max_tokens", -1, INT_MAX);
  return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

std::vector<int32_t>
encode_prompt(const PromptInput& input, const Context& context, bool special) {
  if (input.is_tokens) {
    return input.tokens;
  }
  const std::string_view text = input.text;
  check_text_length({&text, 1}, *context.model, "prompt");
  if (special) {
    return engine::encode_raw(*context.model, input.text);
  }
  return context.model->tokenizer->encode(input.text);
}

CompletionRequest read_completion(
    const OrderedJson& body,
    const Context& context) {
  CompletionRequest out;
  const FieldReader fields(
      body,
      completion_fields(),
      context.limits.strict,
      out.ignored);
  const auto inputs = read_prompt_inputs(
      fields,
      "prompt",
      static_cast<size_t>(context.limits.max_prompts),
      context.model->vocab_size);
  Generation generation = read_generation(fields, context);
  const auto constraint = read_constraint(fields, context.limits);
  const auto max_tokens = read_max_tokens(fields);
  const bool special = fields.boolean("add_special_tokens").value_or(true);
  const bool echo = fields.boolean("echo").value_or(false);
  if (const auto top =
          fields.integer("logprobs", 0, context.limits.max_top_logprobs)) {
    out.logprobs = static_cast<int>(*top);
    generation.request.top_logprobs = out.logprobs;
    generation.request.echo_logprobs = echo;
  }
  if (max_tokens == 0 && !echo) {
    fields.refuse(
        "max_tokens",
        "must be at least 1 without echo",
        "invalid_value");
  }
  if (constraint) {
    check_constraint(constraint->constraint, *context.model, constraint->param);
    generation.request.constraint = constraint->constraint;
  }
  out.n = generation.request.n;
  out.stream = generation.stream;
  out.include_usage = generation.include_usage;
  for (const PromptInput& input : inputs) {
    engine::Request request = generation.request;
    request.prompt = encode_prompt(input, context, special);
    if (request.prompt.empty()) {
      fields.refuse("prompt", "must not be empty", "invalid_value");
    }
    set_room(request, max_tokens, context, "prompt");
    if (echo) {
      out.echoes.push_back(
          input.is_tokens ? context.model->tokenizer->decode(input.tokens)
                          : input.text);
    }
    out.requests.push_back(std::move(request));
  }
  return out;
}

class CompletionAnswer : public Answer {
 public:
  CompletionAnswer(CompletionRequest request, const Context& context)
      : request_(std::move(request)),
        tokenizer_(context.model->tokenizer),
        model_(context.model->name),
        adapter_(request_.requests[0].adapter),
        created_(context.unix_time),
        id_(context.make_id("cmpl-")),
        usage_(request_.requests.size()) {
    for (size_t i = 0; i < request_.requests.size(); ++i) {
      request_.requests[i].id = id_;
      for (int j = 0; j < request_.n; ++j) {
        choices_.emplace_back(request_.logprobs.value_or(0));
      }
    }
  }

  std::vector<engine::Request> take_requests() override {
    return std::move(request_.requests);
  }

  bool streams() const override {
    return request_.stream;
  }

  const std::vector<std::string>& ignored() const override {
    return request_.ignored;
  }

  std::string begin() override {
    return "";
  }

  std::string take(size_t index, const engine::Event& event) override {
    if (has_failed(event)) {
      if (!failed_) {
        failed_ = *event.finish;
      }
      return "";
    }
    const size_t at = index * static_cast<size_t>(request_.n) +
        static_cast<size_t>(event.choice);
    Choice& choice = choices_.at(at);
    std::string text;
    if (!choice.begun && !request_.echoes.empty()) {
      text = request_.echoes.at(index);
    }
    choice.begun = true;
    text += event.text;
    add_logprobs(event, choice);
    if (event.finish) {
      usage_.add(index, event.finish->usage);
      choice.finish_reason = engine::to_string(event.finish->reason);
    }
    if (!request_.stream) {
      choice.text += text;
      return "";
    }
    if (text.empty() && !event.finish) {
      return "";  // its log-probabilities come with the next text
    }
    OrderedJson frame = envelope();
    frame["choices"] = OrderedJson::array({choice_json(
        at,
        text,
        choice,
        event.finish ? OrderedJson(choice.finish_reason)
                     : OrderedJson(nullptr))});
    if (request_.include_usage) {
      frame["usage"] = nullptr;
    }
    return sse_frame(frame);
  }

  std::string end() override {
    if (!request_.stream) {
      return "";
    }
    std::string out;
    if (request_.include_usage) {
      OrderedJson frame = envelope();
      frame["choices"] = OrderedJson::array();
      frame["usage"] = usage_.json();
      out = sse_frame(frame);
    }
    out += kSseDone;
    return out;
  }

  std::string body() override {
    if (failed_) {
      throw_finish(*failed_);
    }
    OrderedJson out = envelope();
    OrderedJson choices = OrderedJson::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      choices.push_back(choice_json(
          i,
          choices_[i].text,
          choices_[i],
          choices_[i].finish_reason));
    }
    out["choices"] = std::move(choices);
    out["usage"] = usage_.json();
    return write_json(out);
  }

  std::string failure(const Error& error) override {
    return openai_error_frame(describe_error(error));
  }

 private:
  struct Choice {
    explicit Choice(int top) : logprobs(top) {}
    LegacyLogprobs logprobs;
    std::string text;
    bool begun = false;
    std::string finish_reason;
  };

  void add_logprobs(const engine::Event& event, Choice& choice) {
    if (!request_.logprobs) {
      return;
    }
    for (const engine::AnswerToken& token : event.prompt) {
      choice.logprobs.add(
          token,
          *tokenizer_,
          !tokenizer_->is_special(token.token));
    }
    for (const engine::AnswerToken& token : event.tokens) {
      choice.logprobs.add(
          token,
          *tokenizer_,
          !tokenizer_->is_special(token.token));
    }
  }

  OrderedJson envelope() const {
    OrderedJson out = {
        {"id", id_},
        {"object", "text_completion"},
        {"created", created_},
        {"model", model_},
        {"system_fingerprint", system_fingerprint()}};
    if (!adapter_.empty()) {
      out["adapters"] = adapter_;
    }
    return out;
  }

  static OrderedJson choice_json(
      size_t index,
      const std::string& text,
      Choice& choice,
      OrderedJson finish_reason) {
    OrderedJson out = {{"index", index}, {"text", text}};
    out["logprobs"] = choice.logprobs.take();
    out["finish_reason"] = std::move(finish_reason);
    return out;
  }

  CompletionRequest request_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::string model_;
  std::string adapter_;
  int64_t created_;
  std::string id_;
  std::vector<Choice> choices_;
  UsageSum usage_;
  std::optional<engine::Finish> failed_;
};

}  // namespace

std::unique_ptr<Answer> answer_completion(
    const OrderedJson& body,
    const Context& context) {
  return std::make_unique<CompletionAnswer>(
      read_completion(body, context),
      context);
}

}  // namespace mlxx::api
