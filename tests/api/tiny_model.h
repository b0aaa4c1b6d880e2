#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "mlxx/api/answer.h"
#include "tests/generate/tiny_tokenizer.h"

namespace mlxx::api {

// Shows what it was given: roles, contents, calls and tools.
inline constexpr const char* kTinyTemplate =
    "{% if tools %}[tools {{ tools | tojson }}]{% endif %}"
    "{% for m in messages %}[{{ m.role }}{% if m.name %} {{ m.name }}"
    "{% endif %}] {{ m.content }}"
    "{% for c in m.tool_calls or [] %}[call {{ c.function.name }} "
    "{{ c.function.arguments | tojson }}]{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

// Reasons in <think> unless it is told not to.
inline constexpr const char* kThinkingTemplate =
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]"
    "{% if enable_thinking is defined and not enable_thinking %}"
    "<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}{% endif %}";

// A model of bytes: token b is byte b, <s> begins and </s> ends.
inline std::shared_ptr<engine::ModelText> tiny_model(
    const char* chat_template = kTinyTemplate) {
  auto out = std::make_shared<engine::ModelText>();
  out->name = "tiny";
  out->model_type = "llama";
  out->tokenizer = generate::tiny_tokenizer();
  out->bos_id = out->tokenizer->token_to_id("<s>");
  out->eos_ids = {*out->tokenizer->token_to_id("</s>")};
  out->chat_template =
      text::ChatTemplate::compile(chat_template, "<s>", "</s>");
  out->chat_template_source = chat_template;
  out->vocab_size = out->tokenizer->vocab_size();
  out->context_length = 4096;
  out->created = 1700000000;
  return out;
}

inline Context tiny_context(
    std::shared_ptr<const engine::ModelText> model = tiny_model()) {
  Context out;
  out.model = std::move(model);
  out.unix_time = 1700000001;
  auto count = std::make_shared<int>(0);
  out.make_id = [count](std::string_view prefix) {
    return std::string(prefix) + std::to_string(++*count);
  };
  return out;
}

// An answer as the engine tells it: each piece of `pieces` is one event with a
// token for each of its bytes; then the finish.
inline std::vector<engine::Event> events_of(
    const std::vector<std::string>& pieces,
    engine::FinishReason reason = engine::FinishReason::stop,
    int choice = 0) {
  std::vector<engine::Event> out;
  engine::Finish finish;
  finish.reason = reason;
  finish.usage.prompt_tokens = 10;
  finish.usage.cached_tokens = 4;
  for (const std::string& piece : pieces) {
    engine::Event event;
    event.choice = choice;
    event.text = piece;
    for (char byte : piece) {
      engine::AnswerToken token;
      token.token = static_cast<uint8_t>(byte);
      token.logprob = -0.5f;
      event.tokens.push_back(token);
      ++finish.usage.completion_tokens;
    }
    out.push_back(std::move(event));
  }
  engine::Event last;
  last.choice = choice;
  last.finish = finish;
  out.push_back(std::move(last));
  return out;
}

// The data of each frame of a stream.
inline std::vector<std::string> frames_of(std::string_view stream) {
  std::vector<std::string> out;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    if (end == std::string_view::npos || !stream.starts_with("data: ")) {
      out.push_back("not a frame: " + std::string(stream));
      break;
    }
    out.emplace_back(stream.substr(6, end - 6));
    stream.remove_prefix(end + 2);
  }
  return out;
}

// The whole stream of an answer to one prompt.
inline std::string stream_of(
    Answer& answer,
    const std::vector<engine::Event>& events) {
  std::string out = answer.begin();
  for (const engine::Event& event : events) {
    out += answer.take(0, event);
  }
  return out + answer.end();
}

}  // namespace mlxx::api
