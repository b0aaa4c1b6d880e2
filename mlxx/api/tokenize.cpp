#include "mlxx/api/tokenize.h"

#include <nlohmann/json.hpp>

#include "mlxx/api/field_reader.h"
#include "mlxx/api/json_writer.h"
#include "mlxx/api/prompt_inputs.h"
#include "mlxx/base/utf8.h"

namespace mlxx::api {

namespace {

// Half a second of a thread that others wait for.
constexpr size_t kMaxTextBytes = 1 << 20;

OrderedJson piece_json(int32_t id, const text::Tokenizer& tokenizer) {
  const std::string bytes = tokenizer.token_bytes(id);
  OrderedJson out = {{"id", id}};
  if (is_valid_utf8(bytes)) {
    out["piece"] = bytes;
    return out;
  }
  OrderedJson list = OrderedJson::array();
  for (char byte : bytes) {
    list.push_back(static_cast<uint8_t>(byte));
  }
  out["piece"] = std::move(list);
  return out;
}

std::vector<int32_t> encode_content(
    const FieldReader& fields,
    const Context& context) {
  const auto content = fields.string("content", kMaxTextBytes);
  const auto prompt = fields.string("prompt", kMaxTextBytes);
  if (!content && !prompt) {
    fields.missing("content");
  }
  if (content && prompt) {
    fields.refuse("prompt", "is another name of content", "invalid_value");
  }
  const std::string& text = content ? *content : *prompt;
  const auto special = fields.boolean("add_special");
  const auto other_special = fields.boolean("add_special_tokens");
  const bool parse = fields.boolean("parse_special").value_or(true);
  const bool add = special.value_or(other_special.value_or(false));
  if (add && parse) {
    return engine::encode_raw(*context.model, text);
  }
  return context.model->tokenizer->encode(
      text,
      {.add_special_tokens = add, .parse_special = parse});
}

}  // namespace

std::string tokenize(
    const OrderedJson& body,
    const Context& context,
    std::vector<std::string>& ignored) {
  const FieldReader fields(
      body,
      tokenize_fields(),
      context.limits.strict,
      ignored);
  fields.string("model", 1024);
  const std::vector<int32_t> tokens = encode_content(fields, context);
  OrderedJson list = OrderedJson::array();
  const bool pieces = fields.boolean("with_pieces").value_or(false);
  for (int32_t id : tokens) {
    list.push_back(
        pieces ? piece_json(id, *context.model->tokenizer) : OrderedJson(id));
  }
  OrderedJson out = OrderedJson::object();
  out["tokens"] = std::move(list);
  out["count"] = tokens.size();
  out["max_model_len"] = context.model->context_length;
  return write_json(out);
}

std::string detokenize(
    const OrderedJson& body,
    const Context& context,
    std::vector<std::string>& ignored) {
  const FieldReader fields(
      body,
      detokenize_fields(),
      context.limits.strict,
      ignored);
  fields.string("model", 1024);
  const OrderedJson* tokens = fields.find("tokens");
  if (!tokens) {
    fields.missing("tokens");
  }
  const std::vector<int32_t> ids =
      read_token_ids(*tokens, fields.path("tokens"), context.model->vocab_size);
  return write_json({{"content", context.model->tokenizer->decode(ids)}});
}

}  // namespace mlxx::api
