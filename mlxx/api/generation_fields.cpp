#include "mlxx/api/generation_fields.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cmath>

#include <nlohmann/json.hpp>

#include "mlxx/base/utf8.h"

namespace mlxx::api {

namespace {

constexpr int kMaxContextSize = 1 << 24;  // tokens that a penalty looks at

// More than tokens of prose have; longer texts are looked at in parts first.
constexpr size_t kPlainBytesPerToken = 8;

std::string_view whole_characters(std::string_view text, size_t bytes) {
  if (bytes >= text.size()) {
    return text;
  }
  while (bytes > 0 && (static_cast<uint8_t>(text[bytes]) & 0xc0) == 0x80) {
    --bytes;
  }
  return text.substr(0, bytes);
}

// Tokens of a text, or of so much of its beginning that they are more than
// `limit`.
size_t tokens_at_least(
    std::string_view text,
    size_t limit,
    const text::Tokenizer& tokenizer) {
  size_t bytes = (limit + 1) * kPlainBytesPerToken;
  while (true) {
    const std::string_view part = whole_characters(text, bytes);
    const size_t tokens =
        tokenizer.encode(part, {.parse_special = false}).size();
    if (part.size() == text.size() || tokens > limit) {
      return tokens;
    }
    bytes *= 4;
  }
}

int token_id(
    const FieldReader& fields,
    const std::string& key,
    int vocab_size) {
  int id = -1;
  const char* end = key.data() + key.size();
  const auto [last, error] = std::from_chars(key.data(), end, id);
  const bool plain = error == std::errc() && last == end && id >= 0 &&
      std::to_string(id) == key;
  if (!plain) {
    fields.refuse(
        "logit_bias",
        "keys must be token ids, such as \"50256\"",
        "invalid_value");
  }
  if (vocab_size > 0 && id >= vocab_size) {
    fields.refuse(
        "logit_bias",
        fmt::format("token ids go from 0 to {}, found {}", vocab_size - 1, id),
        "invalid_value");
  }
  return id;
}

void set_logit_bias(
    const FieldReader& fields,
    const Context& context,
    std::map<int, float>& option) {
  const int vocab_size = context.model->vocab_size;
  const auto max_entries = static_cast<size_t>(context.limits.max_logit_bias);
  const OrderedJson* given = fields.find("logit_bias");
  if (!given) {
    return;
  }
  if (!given->is_object()) {
    fields.refuse(
        "logit_bias",
        type_problem("an object", *given),
        "invalid_type");
  }
  if (given->size() > max_entries) {
    fields.refuse(
        "logit_bias",
        fmt::format(
            "has {} entries, {} are allowed",
            given->size(),
            max_entries),
        "array_above_max_length");
  }
  for (const auto& [key, value] : given->items()) {
    const int id = token_id(fields, key, vocab_size);
    if (!value.is_number() || !std::isfinite(value.get<double>())) {
      fields.refuse(
          "logit_bias",
          fmt::format("the bias of token {} must be a number", id),
          "invalid_value");
    }
    const double bias = std::clamp(value.get<double>(), -100.0, 100.0);
    option[id] = static_cast<float>(bias);
  }
}

void set_number(
    const FieldReader& fields,
    std::string_view name,
    double min,
    double max,
    float& option) {
  if (const auto value = fields.number(name, min, max)) {
    option = static_cast<float>(*value);
  }
}

void set_integer(
    const FieldReader& fields,
    std::string_view name,
    int min,
    int max,
    int& option) {
  if (const auto value = fields.integer(name, min, max)) {
    option = static_cast<int>(*value);
  }
}

// One window serves both penalties.
void set_penalty_context(
    const FieldReader& fields,
    generate::SamplingOptions& options) {
  const auto presence =
      fields.integer("presence_context_size", 0, kMaxContextSize);
  const auto frequency =
      fields.integer("frequency_context_size", 0, kMaxContextSize);
  if (presence && frequency && *presence != *frequency) {
    fields.refuse(
        "frequency_context_size",
        "must be the same as presence_context_size",
        "invalid_value");
  }
  if (const auto size = presence ? presence : frequency) {
    options.penalty_context_size = static_cast<int>(*size);
  }
}

void check_best_of(const FieldReader& fields, int n, int max_n) {
  const auto best_of = fields.integer("best_of", 1, max_n);
  if (best_of && *best_of != n) {
    fields.refuse(
        "best_of",
        fmt::format("must be equal to n, which is {}", n),
        "unsupported_parameter");
  }
}

}  // namespace

generate::SamplingOptions read_sampling(
    const FieldReader& fields,
    const Context& context) {
  generate::SamplingOptions out = context.model->sampling;
  set_number(fields, "temperature", 0, 2, out.temperature);
  set_number(fields, "top_p", 0, 1, out.top_p);
  set_integer(fields, "top_k", -1, INT_MAX, out.top_k);
  out.top_k = std::max(out.top_k, 0);
  set_number(fields, "min_p", 0, 1, out.min_p);
  set_number(fields, "xtc_probability", 0, 1, out.xtc_probability);
  set_number(fields, "xtc_threshold", 0, 0.5, out.xtc_threshold);
  set_number(fields, "repetition_penalty", 0, 100, out.repetition_penalty);
  set_integer(
      fields,
      "repetition_context_size",
      0,
      kMaxContextSize,
      out.repetition_context_size);
  set_number(fields, "presence_penalty", -2, 2, out.presence_penalty);
  set_number(fields, "frequency_penalty", -2, 2, out.frequency_penalty);
  set_penalty_context(fields, out);
  set_logit_bias(fields, context, out.logit_bias);
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX)) {
    out.seed = *seed;
  }
  return out;
}

std::string read_adapter(const FieldReader& fields) {
  std::string name = fields.string("adapters", 1024).value_or("");
  if (name == "none") {
    return "";
  }
  std::replace(name.begin(), name.end(), ',', '+');
  return name;
}

void require_answers(const engine::ModelText& model) {
  if (model.is_embedding_model || model.is_reranker) {
    throw RequestError(
        400,
        fmt::format(
            "[model] {} writes no answers, it makes {}",
            model.name,
            model.is_reranker ? "scores" : "vectors"),
        "model",
        "invalid_value");
  }
}

void check_text_length(
    std::span<const std::string_view> texts,
    const engine::ModelText& model,
    std::string_view param) {
  if (model.context_length <= 0 || !model.tokenizer) {
    return;
  }
  const auto context = static_cast<size_t>(model.context_length);
  size_t bytes = 0;
  for (std::string_view text : texts) {
    bytes += text.size();
  }
  if (bytes <= context * kPlainBytesPerToken) {
    return;
  }
  size_t tokens = 0;
  for (std::string_view text : texts) {
    tokens += tokens_at_least(text, context, *model.tokenizer);
    // The whole prompt has a few less where texts meet.
    if (tokens > context + texts.size()) {
      throw RequestError(
          400,
          fmt::format(
              "[{}] has more than {} tokens, the context of {} has room for {} "
              "and an answer",
              param,
              context,
              model.name,
              context - 1),
          std::string(param),
          "context_length_exceeded");
    }
  }
}

std::string_view beginning_of_text(
    std::string_view text,
    const engine::ModelText& model) {
  if (model.context_length <= 0 || !model.tokenizer) {
    return text;
  }
  const auto context = static_cast<size_t>(model.context_length);
  size_t bytes = (context + 2) * kPlainBytesPerToken;
  while (true) {
    // Where it is cut off, a token may come out as two.
    const std::string_view part = whole_characters(text, bytes);
    if (part.size() == text.size() ||
        model.tokenizer->encode(part, {.parse_special = false}).size() >
            context + 1) {
      return part;
    }
    bytes *= 4;
  }
}

std::vector<std::string> read_stop(
    const FieldReader& fields,
    std::string_view name,
    const Limits& limits) {
  std::vector<std::string> out;
  const OrderedJson* given = fields.find(name);
  if (!given) {
    return out;
  }
  auto add = [&](const OrderedJson& item) {
    if (!item.is_string()) {
      fields.refuse(
          name,
          type_problem("a string or a list of strings", item),
          "invalid_type");
    }
    const auto& text = item.get_ref<const std::string&>();
    if (text.empty() ||
        text.size() > static_cast<size_t>(limits.max_stop_bytes)) {
      fields.refuse(
          name,
          fmt::format(
              "a stop string must have 1 to {} bytes, found {}",
              limits.max_stop_bytes,
              text.size()),
          "invalid_value");
    }
    if (!is_valid_utf8(text)) {
      fields.refuse(name, "is not valid UTF-8", "invalid_value");
    }
    out.push_back(text);
  };
  if (!given->is_array()) {
    add(*given);
    return out;
  }
  fields.list(name, static_cast<size_t>(limits.max_stop));
  for (const OrderedJson& item : *given) {
    add(item);
  }
  return out;
}

Generation read_generation(const FieldReader& fields, const Context& context) {
  const Limits& limits = context.limits;
  require_answers(*context.model);
  Generation out;
  engine::Request& request = out.request;
  fields.string("model", 1024);  // the caller chose context.model by it
  request.model = context.model->name;
  request.adapter = read_adapter(fields);
  request.sampling = read_sampling(fields, context);
  request.n =
      static_cast<int>(fields.integer("n", 1, limits.max_n).value_or(1));
  check_best_of(fields, request.n, limits.max_n);
  request.stop = read_stop(fields, "stop", limits);
  request.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  request.priority =
      static_cast<int>(fields.integer("priority", -100, 100).value_or(0));
  out.stream = fields.boolean("stream").value_or(false);
  if (const auto options = fields.object("stream_options")) {
    out.include_usage = options->boolean("include_usage").value_or(false);
  }
  return out;
}

void set_room(
    engine::Request& request,
    std::optional<int> asked,
    const Context& context,
    std::string_view param) {
  const auto used = static_cast<int>(request.prompt.size());
  const int context_length = context.model->context_length;
  int room =
      context.limits.max_tokens > 0 ? context.limits.max_tokens : INT_MAX;
  if (context_length > 0) {
    if (used >= context_length) {
      throw RequestError(
          400,
          fmt::format(
              "[{}] has {} tokens, the context of {} has room for {} and an "
              "answer",
              param,
              used,
              context.model->name,
              context_length - 1),
          std::string(param),
          "context_length_exceeded");
    }
    room = std::min(room, context_length - used);
  } else if (room == INT_MAX) {
    room = std::max(context.limits.default_max_tokens, 1 << 20);
  }
  const int wanted =
      asked ? (*asked < 0 ? room : *asked) : context.limits.default_max_tokens;
  request.max_tokens = std::min(wanted, room);
}

}  // namespace mlxx::api
