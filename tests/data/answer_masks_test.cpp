#include <gtest/gtest.h>

#include "tests/data/small_data.h"

namespace mlxx::data {
namespace {

using Texts = std::vector<std::string>;

Texts answers(const char* source, std::string_view line) {
  SmallData made(source);
  made.options.mask_prompt = true;
  return made.targets(made.open(line)->batch(0));
}

constexpr const char* kTwoTurns =
    R"({"messages": [{"role": "user", "content": "one"},
      {"role": "assistant", "content": "uno"},
      {"role": "user", "content": "two"},
      {"role": "assistant", "content": "dos"}]})";

std::string one_line(std::string text) {
  std::erase(text, '\n');
  return text;
}

TEST(AnswerMasks, EveryTurnOfTheAssistantIsATargetAndNothingElse) {
  EXPECT_EQ(
      answers(kPlainTemplate, one_line(kTwoTurns)),
      (Texts{"uno<end>\n", "dos<end>\n"}));
}

TEST(AnswerMasks, WithoutThemAllButTheFirstTokenIsATarget) {
  SmallData made;
  Batch batch = made.open(one_line(kTwoTurns))->batch(0);
  EXPECT_EQ(
      made.targets(batch),
      (Texts{"user\none<end>\n<s>assistant\nuno<end>\n<s>user\ntwo<end>\n"
             "<s>assistant\ndos<end>\n"}));
}

TEST(AnswerMasks, TextsThatLookLikeOtherTurnsDoNotMoveThem) {
  EXPECT_EQ(
      answers(
          kPlainTemplate,
          R"({"messages": [{"role": "user", "content": "<s>assistant\nx<end>"},)"
          R"({"role": "assistant", "content": "a<end>\n<s>user\nb"},)"
          R"({"role": "user", "content": "a<end>\n<s>user\nb"},)"
          R"({"role": "assistant", "content": "assistant\n"}]})"),
      (Texts{"a<end>\n<s>user\nb<end>\n", "assistant\n<end>\n"}));
  // They stay plain text: no control tokens but the template's.
  SmallData made;
  Batch batch =
      made.open(R"({"messages": [{"role": "user", "content": "<end><end>"},)"
                R"({"role": "assistant", "content": "<end>"}]})")
          ->batch(0);
  EXPECT_EQ(
      std::ranges::count(batch.tokens, *made.tokenizer->token_to_id("<end>")),
      2);
}

TEST(AnswerMasks, OfToolTurnsAreTheCallsAndTheLastAnswer) {
  const char* with_tools =
      "{% for t in tools or [] %}[{{ t.name }}]{% endfor %}"
      "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}"
      "{% for c in m.tool_calls or [] %}CALL {{ c.function.name }}"
      "({{ c.function.arguments | tojson }}){% endfor %}<end>\n{% endfor %}"
      "{% if add_generation_prompt %}<s>assistant\n{% endif %}";
  EXPECT_EQ(
      answers(
          with_tools,
          R"({"tools": [{"name": "add"}], "messages": [)"
          R"({"role": "user", "content": "1+1"},)"
          R"({"role": "assistant", "content": null, "tool_calls": [)"
          R"({"type": "function", "function": {"name": "add",)"
          R"("arguments": "{\"a\": 1}"}}]},)"
          R"({"role": "tool", "content": "2"},)"
          R"({"role": "assistant", "content": "It is 2."}]})"),
      (Texts{"CALL add({\"a\": 1})<end>\n", "It is 2.<end>\n"}));
}

TEST(AnswerMasks, BeginWhereAHeaderThatOnlyPromptsHaveDoes) {
  const char* channel =
      "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}<end>\n"
      "{% endfor %}{% if add_generation_prompt %}<s>assistant\n"
      "<channel>final{% endif %}";
  EXPECT_EQ(
      answers(channel, one_line(kTwoTurns)),
      (Texts{"uno<end>\n", "dos<end>\n"}));
  // The answer begins as that header does.
  EXPECT_EQ(
      answers(channel, R"({"prompt": "q", "completion": "<cha"})"),
      (Texts{"<cha<end>\n"}));
}

// Qwen3 and others leave the thoughts of all but the last turns out and write
// an empty thought into the last one.
constexpr const char* kForgetful =
    "{% for m in messages %}<s>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}"
    "{% set said = m.content.split('</think>')[-1].lstrip('\n') %}"
    "{% if loop.last %}<think>"
    "{{ m.content.split('</think>')[0].split('<think>')[-1] if '</think>' in "
    "m.content }}</think>\n"
    "{% endif %}{{ said }}{% else %}{{ m.content }}{% endif %}<end>\n"
    "{% endfor %}{% if add_generation_prompt %}<s>assistant\n{% endif %}";

TEST(AnswerMasks, AreRightWhereTurnsAreWrittenDifferentlyOnceOthersFollow) {
  EXPECT_EQ(
      answers(
          kForgetful,
          R"({"messages": [{"role": "user", "content": "one"},)"
          R"({"role": "assistant", "content": "<think>a</think>\nuno"},)"
          R"({"role": "user", "content": "two"},)"
          R"({"role": "assistant", "content": "<think>b</think>\ndos"},)"
          R"({"role": "tool", "content": "three"},)"
          R"({"role": "assistant", "content": "<think>c</think>\ntres"}]})"),
      (Texts{"uno<end>\n", "dos<end>\n", "<think>c</think>\ntres<end>\n"}));
}

TEST(AnswerMasks, AreRightUnderTemplatesThatRefusePartsOfConversations) {
  const char* strict =
      "{% if messages | length != 4 %}{{ raise_exception('four') }}{% endif %}"
      "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}</s>"
      "{% endfor %}";
  EXPECT_EQ(
      answers(strict, one_line(kTwoTurns)),
      (Texts{"uno</s>", "dos</s>"}));
}

constexpr const char* kCallThenMore =
    R"({"messages": [{"role": "user", "content": "one"},
      {"role": "assistant", "content": "", "tool_calls": [{"type": "function",
       "function": {"name": "add", "arguments": {"a": 1}}}]},
      {"role": "tool", "content": "2"},
      {"role": "assistant", "content": "It is 2."},
      {"role": "user", "content": "two"},
      {"role": "assistant", "content": "dos"}]})";

TEST(AnswerMasks, OfACallThatIsWrittenDifferentlyOnceItsResultFollows) {
  // An empty thought where the call is last, a line's end behind any text.
  const char* thinking =
      "{% for m in messages %}<s>{{ m.role }}\n"
      "{% if m.role == 'assistant' and loop.last %}<think></think>\n"
      "{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}"
      "{{ '\n' if m.content }}CALL {{ c.function.name }}{% endfor %}<end>\n"
      "{% endfor %}{% if add_generation_prompt %}<s>assistant\n{% endif %}";
  EXPECT_EQ(
      answers(thinking, one_line(kCallThenMore)),
      (Texts{
          "CALL add<end>\n",
          "It is 2.<end>\n",
          "<think></think>\ndos<end>\n"}));
}

TEST(AnswerMasks, OfACallThatReplacesTheTextWhileToolsMoveToTheLastQuestion) {
  const char* moving =
      "{% set last = messages | selectattr('role', 'equalto', 'user') | list | "
      "last %}{% for m in messages %}"
      "{% if m.role == 'user' %}{{ '[TOOLS]' if m == last }}[{{ m.content }}]"
      "{% elif m.tool_calls %}CALL {{ m.tool_calls[0].function.name }}</s>"
      "{% else %}{{ m.content }}{{ '</s>' if m.role == 'assistant' else '|' }}"
      "{% endif %}{% endfor %}";
  EXPECT_EQ(
      answers(moving, one_line(kCallThenMore)),
      (Texts{"CALL add</s>", "It is 2.</s>", "dos</s>"}));
}

TEST(AnswerMasks, OfAConversationThatBeginsWithAnAnswer) {
  EXPECT_EQ(
      answers(
          kPlainTemplate,
          R"({"messages": [{"role": "assistant", "content": "hello"},)"
          R"({"role": "user", "content": "x"}]})"),
      (Texts{"hello<end>\n"}));
}

TEST(AnswerMasks, OfWhiteSpaceThatTheTemplateStrips) {
  const char* strips =
      "{% for m in messages %}<s>{{ m.role }}\n{{ m.content | trim }}<end>\n"
      "{% endfor %}{% if add_generation_prompt %}<s>assistant\n{% endif %}";
  EXPECT_EQ(
      answers(
          strips,
          R"({"messages": [{"role": "user", "content": " q "},)"
          R"({"role": "assistant", "content": "  a\n\n"},)"
          R"({"role": "user", "content": "\n"},)"
          R"({"role": "assistant", "content": "b  "}]})"),
      (Texts{"a<end>\n", "b<end>\n"}));
}

TEST(AnswerMasks, OfAllFormats) {
  SmallData made;
  made.options.mask_prompt = true;
  auto of = [&](std::string_view line) {
    return made.targets(made.open(line)->batch(0));
  };
  EXPECT_EQ(of(R"({"prompt": "p", "completion": "c"})"), (Texts{"c<end>\n"}));
  EXPECT_EQ(of(R"({"prompt": "p", "completion": ""})"), (Texts{"<end>\n"}));
  EXPECT_EQ(
      of(R"({"prompt": [{"role": "user", "content": "p"},)"
         R"({"role": "assistant", "content": "not this"},)"
         R"({"role": "user", "content": "q"}],)"
         R"("completion": [{"role": "assistant", "content": "this"}]})"),
      (Texts{"this<end>\n"}));
  EXPECT_EQ(of(R"({"text": "abc"})"), (Texts{"bc</s>"}));
  made.chat_template = nullptr;
  EXPECT_EQ(of(R"({"prompt": "p", "completion": "c"})"), (Texts{"c</s>"}));
  EXPECT_EQ(of(R"({"prompt": "p", "completion": ""})"), (Texts{"</s>"}));
}

TEST(AnswerMasks, OfAPromptThatMergesWithItsAnswer) {
  SmallData made(nullptr);
  made.options.mask_prompt = true;
  // "h" and "i" are one token together: it is predicted.
  Batch batch = made.open(R"({"prompt": "oh", "completion": "i!"})")->batch(0);
  EXPECT_EQ(made.targets(batch), (Texts{"hi!</s>"}));
}

TEST(AnswerMasks, EndWithTheCut) {
  SmallData made;
  made.options.mask_prompt = true;
  made.options.max_length = 23;
  auto data = made.open(
      R"({"prompt": "abc", "completion": "def"})"
      "\n"
      R"({"prompt": "a prompt that leaves no room at all", "completion": "x"})");
  // <s>user\nabc<end>\n<s>assistant\ndef<end>\n
  EXPECT_EQ(made.targets(data->batch(0)), (Texts{"d"}));
  EXPECT_EQ(data->samples(), 1);
  EXPECT_EQ(data->summary().skipped, 1);
  EXPECT_EQ(data->summary().cut, 2);
  EXPECT_NE(data->summary().first_skipped.find("line 2"), std::string::npos);
}

TEST(AnswerMasks, WithoutAnyTargetAreAnError) {
  SmallData made;
  made.options.mask_prompt = true;
  made.options.max_length = 16;
  EXPECT_NE(
      made.error(
              R"({"prompt": "a prompt of more than 16", "completion": "abc"})")
          .find("[train.jsonl: line 1] has no token to predict"),
      std::string::npos);
}

}  // namespace
}  // namespace mlxx::data
