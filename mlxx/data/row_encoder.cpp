#include "mlxx/data/row_encoder.h"

#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/data/answer_spans.h"
#include "mlxx/text/chat_template.h"
#include "mlxx/text/prompt_encoding.h"
#include "mlxx/text/tokenizer.h"

namespace mlxx::data {
namespace {

using Tokens = std::vector<int32_t>;

size_t common_prefix(const Tokens& a, const Tokens& b) {
  auto [end, other] = std::ranges::mismatch(a, b);
  return static_cast<size_t>(end - a.begin());
}

TokenRow row_of(Tokens tokens, uint8_t target) {
  TokenRow row;
  row.targets.assign(tokens.size(), target);
  row.tokens = std::move(tokens);
  return row;
}

// One BOS at the start, whoever wrote it, and no target there.
void finish(TokenRow& row, std::optional<int32_t> bos) {
  while (bos && row.tokens.size() > 1 && row.tokens[0] == *bos &&
         row.tokens[1] == *bos) {
    row.tokens.erase(row.tokens.begin());
    row.targets.erase(row.targets.begin());
  }
  if (!row.targets.empty()) {
    row.targets[0] = 0;
  }
}

}  // namespace

RowEncoder::RowEncoder(
    const text::Tokenizer& tokenizer,
    const text::ChatTemplate* chat_template,
    const DataOptions& options,
    int64_t unix_time)
    : tokenizer_(tokenizer),
      chat_template_(chat_template),
      options_(options),
      unix_time_(unix_time),
      mark_(text::unused_noncharacters("", 1)[0]),
      literals_(tokenizer, mark_) {}

Tokens RowEncoder::raw(std::string_view text) const {
  text::PromptParts parts{.tokenizer = tokenizer_};
  parts.bos_id = options_.bos_id;
  parts.add_bos = options_.add_bos;
  return text::encode_raw_prompt(parts, text);
}

TokenRow RowEncoder::text(std::string_view text) const {
  Tokens tokens = raw(text);
  auto eos = options_.eos_id;
  if (eos && (tokens.empty() || tokens.back() != *eos)) {
    tokens.push_back(*eos);
  }
  TokenRow row = row_of(std::move(tokens), 1);
  finish(row, options_.bos_id);
  return row;
}

TokenRow RowEncoder::completion(
    std::string_view prompt,
    std::string_view answer) const {
  TokenRow row = text(fmt::format("{}{}", prompt, answer));
  size_t begin = common_prefix(raw(prompt), row.tokens);
  // An EOS that the tokenizer itself puts behind a prompt is no part of it.
  begin = std::min(begin, row.tokens.size() - (row.tokens.empty() ? 0 : 1));
  std::fill_n(row.targets.begin(), begin, uint8_t{0});
  return row;
}

const text::ChatTemplate& RowEncoder::template_for(
    const OrderedJson& tools) const {
  bool with_tools = !tools.is_null() && !tools.empty();
  if (with_tools && options_.tool_template) {
    return *options_.tool_template;
  }
  if (!chat_template_) {
    if (!options_.chat_template_error.empty()) {
      fail(
          ErrorKind::unsupported,
          "chat_template",
          "the model's chat template cannot be used: {}",
          options_.chat_template_error);
    }
    fail(
        ErrorKind::invalid_request,
        "chat_template",
        "the model has no chat template, which messages need: train on "
        "\"text\" or on \"prompt\" and \"completion\"");
  }
  return *chat_template_;
}

TokenRow RowEncoder::conversation(
    const OrderedJson& messages,
    const OrderedJson& tools,
    size_t first_answer,
    bool only_answers) const {
  const auto& chat_template = template_for(tools);
  OrderedJson normal = text::normalize_messages(messages);
  std::string content = normal.dump() + tools.dump();
  auto marks = text::unused_noncharacters(content, 3);
  std::optional<text::SpecialLiterals> own;
  std::string literal_mark = mark_;
  if (content.find(mark_) != std::string::npos) {
    literal_mark = marks[0];
    own.emplace(tokenizer_, literal_mark);
  }
  const text::SpecialLiterals& literals = own ? *own : literals_;
  ConversationTemplate with{
      .chat_template = chat_template,
      .unix_time = unix_time_,
      .mark = marks[1]};
  normal = literals.break_up(normal);
  OrderedJson plain_tools = literals.break_up(tools);
  if (!only_answers) {
    TokenRow row = row_of(
        literals.encode(render_conversation_text(with, normal, plain_tools)),
        1);
    finish(row, options_.bos_id);
    return row;
  }
  auto rendered = render_conversation(with, normal, plain_tools, first_answer);
  TokenRow row = row_of(literals.encode(rendered.text), 0);
  // Tokens up to a byte of the text: those that it shares with its beginning
  // up to there. One that reaches over the byte is counted to what follows.
  auto token_at = [&](size_t byte) {
    if (byte == rendered.text.size()) {
      return row.tokens.size();
    }
    return common_prefix(
        literals.encode(rendered.text.substr(0, byte)),
        row.tokens);
  };
  for (const auto& span : rendered.answers) {
    size_t begin = token_at(span.begin);
    size_t end = std::max(begin, token_at(span.end));
    std::fill(
        row.targets.begin() + static_cast<std::ptrdiff_t>(begin),
        row.targets.begin() + static_cast<std::ptrdiff_t>(end),
        uint8_t{1});
  }
  finish(row, options_.bos_id);
  return row;
}

}  // namespace mlxx::data
