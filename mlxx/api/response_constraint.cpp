#include "mlxx/api/response_constraint.h"

#include <algorithm>
#include <bit>
#include <vector>

#include <nlohmann/json.hpp>

#include "mlxx/api/json_writer.h"

namespace mlxx::api {

namespace {

using text::GrammarKind;

void check_size(size_t bytes, const std::string& param, const Limits& limits) {
  if (bytes > static_cast<size_t>(limits.max_schema_bytes)) {
    throw RequestError(
        400,
        fmt::format(
            "[{}] has {} bytes, {} are allowed",
            param,
            bytes,
            limits.max_schema_bytes),
        param,
        "string_above_max_length");
  }
}

// One of the alternatives of a list of strings.
std::string choice_grammar(
    const FieldReader& fields,
    const OrderedJson& choices) {
  std::string grammar = "start: ";
  for (const OrderedJson& choice : choices) {
    if (!choice.is_string() || choice.get_ref<const std::string&>().empty()) {
      fields.refuse(
          "guided_choice",
          "must be a list of strings that are not empty",
          "invalid_value");
    }
    if (grammar.size() > 7) {
      grammar += " | ";
    }
    grammar += write_json(choice);
  }
  return grammar;
}

// Grammars are compiled as they are followed: some that parse cannot be
// followed, or only at a cost that ends in an error. Better here than on the
// engine's thread, between the steps of everybody.
void try_first_tokens(text::GrammarMatcher& matcher, size_t mask_words) {
  constexpr int kSteps = 3;
  std::vector<uint32_t> mask(mask_words);
  for (int step = 0; step < kSteps && !matcher.is_stopped(); ++step) {
    matcher.mask(mask);
    const auto word = std::find_if(mask.begin(), mask.end(), [](uint32_t bits) {
      return bits != 0;
    });
    if (word == mask.end()) {
      fail(ErrorKind::invalid_request, "grammar", "allows no answer at all");
    }
    const auto token = static_cast<int32_t>(word - mask.begin()) * 32 +
        std::countr_zero(*word);
    if (!matcher.commit(token)) {
      return;
    }
  }
}

class Alternatives {
 public:
  Alternatives(const FieldReader& fields, const Limits& limits)
      : fields_(fields), limits_(limits) {}

  void text(std::string_view name, GrammarKind kind) {
    if (auto given = fields_.string(name)) {
      Limits limits = limits_;
      if (kind == GrammarKind::lark) {
        limits.max_schema_bytes =
            std::min(limits.max_schema_bytes, limits.max_grammar_bytes);
      }
      check_size(given->size(), fields_.path(name), limits);
      take({kind, std::move(*given), fields_.path(name)});
    }
  }

  void schema(std::string_view name) {
    if (const OrderedJson* given = fields_.find(name)) {
      take(schema_constraint(*given, fields_.path(name), limits_));
    }
  }

  void choice(std::string_view name) {
    const OrderedJson* given = fields_.list(name, 1024);
    if (!given) {
      return;
    }
    if (given->empty()) {
      fields_.refuse(name, "must not be empty", "invalid_value");
    }
    std::string grammar = choice_grammar(fields_, *given);
    check_size(grammar.size(), fields_.path(name), limits_);
    take({GrammarKind::lark, std::move(grammar), fields_.path(name)});
  }

  std::optional<GivenConstraint> result() {
    return std::move(result_);
  }

 private:
  void take(GivenConstraint given) {
    result_ = only_one(std::move(result_), std::move(given));
  }

  const FieldReader& fields_;
  const Limits& limits_;
  std::optional<GivenConstraint> result_;
};

}  // namespace

GivenConstraint schema_constraint(
    const OrderedJson& schema,
    std::string param,
    const Limits& limits) {
  if (!schema.is_object() && !schema.is_boolean()) {
    throw RequestError(
        400,
        fmt::format("[{}] {}", param, type_problem("a JSON schema", schema)),
        param,
        "invalid_type");
  }
  std::string text = write_json(schema);
  check_size(text.size(), param, limits);
  return {GrammarKind::json_schema, std::move(text), std::move(param)};
}

std::optional<GivenConstraint> only_one(
    std::optional<GivenConstraint> first,
    std::optional<GivenConstraint> second) {
  if (first && second) {
    throw RequestError(
        400,
        fmt::format(
            "[{}] cannot be combined with {}",
            second->param,
            first->param),
        second->param,
        "invalid_value");
  }
  return first ? std::move(first) : std::move(second);
}

std::optional<GivenConstraint> read_constraint(
    const FieldReader& fields,
    const Limits& limits) {
  Alternatives alternatives(fields, limits);
  alternatives.text("grammar", GrammarKind::lark);
  alternatives.text("regex", GrammarKind::regex);
  alternatives.text("guided_regex", GrammarKind::regex);
  alternatives.schema("json_schema");
  alternatives.schema("guided_json");
  alternatives.choice("guided_choice");
  return alternatives.result();
}

std::optional<GivenConstraint> read_response_format(
    const FieldReader& fields,
    const Limits& limits) {
  const auto format = fields.object("response_format");
  if (!format) {
    return std::nullopt;
  }
  const auto type =
      format->word("type", {"text", "json_object", "json_schema"});
  if (!type) {
    format->missing("type");
  }
  const auto described = format->object("json_schema");
  const OrderedJson* schema =
      described ? described->find("schema") : format->find("schema");
  if (*type == "text") {
    return std::nullopt;
  }
  if (*type == "json_schema" && !schema) {
    if (described) {
      described->missing("schema");
    }
    format->missing("json_schema");
  }
  if (!schema) {
    return GivenConstraint(
        GrammarKind::json_schema,
        R"({"type":"object"})",
        format->path("type"));
  }
  return schema_constraint(
      *schema,
      described ? described->path("schema") : format->path("schema"),
      limits);
}

engine::Constraint schema_or_calls(
    const engine::Constraint& schema,
    const std::string& calls) {
  // The rule that begins the calls gets another name.
  constexpr std::string_view kStart = "start:";
  std::string grammar = "start: schema_answer | call_answer\n";
  // White space as in a schema alone.
  OrderedJson object = OrderedJson::parse(schema.grammar);
  if (object.is_object() && !object.contains("x-guidance")) {
    object["x-guidance"] = {
        {"whitespace_flexible", false},
        {"item_separator", ", "},
        {"key_separator", ": "}};
  }
  grammar += "schema_answer: %json ";
  grammar += object.is_object() ? write_json(object) : std::string("{}");
  grammar += "\n";
  std::string_view rest = calls;
  std::string options;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
    const std::string_view line = rest.substr(0, end);
    if (line.starts_with(kStart)) {
      grammar += "call_answer:";
      grammar += line.substr(kStart.size());
    } else if (line.starts_with("%llguidance")) {
      options += line;  // must come first
    } else {
      grammar += line;
    }
    rest.remove_prefix(end);
  }
  return {GrammarKind::lark, options + grammar};
}

void check_constraint(
    const engine::Constraint& constraint,
    const engine::ModelText& model,
    const std::string& param) {
  try {
    const auto tokens = model.grammar->get(model);
    text::GrammarMatcher matcher(tokens, constraint.kind, constraint.grammar);
    try_first_tokens(matcher, tokens->mask_words());
  } catch (const RequestError&) {
    throw;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_request) {
      throw;
    }
    std::string_view why = error.what();
    if (why.ends_with("NoExtensionBias")) {
      why = "it allows no answer at all";  // llguidance's word for that
    }
    throw RequestError(
        400,
        fmt::format("[{}] cannot be enforced: {}", param, why),
        param,
        "invalid_schema");
  }
}

}  // namespace mlxx::api
