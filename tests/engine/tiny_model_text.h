#pragma once

#include <memory>
#include <string>
#include <utility>

#include "mlxx/engine/model_text.h"
#include "tests/generate/tiny_tokenizer.h"

namespace mlxx::engine {

// ChatML with tools and a thinking block that enable_thinking opens; the
// control tokens are those of the tiny tokenizer.
inline constexpr const char* kTinyTemplate =
    "{{ bos_token }}{% if tools %}tools:{{ tools | tojson }}{{ eos_token }}"
    "{% endif %}{% for m in messages %}{{ m.role }}:{{ m.content }}"
    "{% for call in m.tool_calls or [] %}{{ call.function | tojson }}"
    "{% endfor %}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% if enable_thinking %}<think>"
    "{% endif %}{% endif %}";

// A model's text without a model: byte b is token b, then come <s>, </s> and
// <end>, control tokens with the ids vocab_size - 3 and up. </s> ends answers.
inline std::shared_ptr<ModelText> tiny_model_text(
    std::string name = "tiny",
    const std::string& chat_template = kTinyTemplate) {
  auto text = std::make_shared<ModelText>();
  text->name = std::move(name);
  text->model_type = "llama";
  text->tokenizer = generate::tiny_tokenizer({"hi"});
  text->bos_id = text->tokenizer->token_to_id("<s>");
  text->eos_ids = {*text->tokenizer->token_to_id("</s>")};
  if (!chat_template.empty()) {
    text->chat_template =
        text::ChatTemplate::compile(chat_template, "<s>", "</s>");
    text->chat_template_source = chat_template;
  }
  text->vocab_size = text->tokenizer->vocab_size();
  text->context_length = 512;
  text->created = 1'700'000'000;
  return text;
}

}  // namespace mlxx::engine
