#pragma once

#include <optional>
#include <string>

#include "mlxx/api/answer.h"
#include "mlxx/api/field_reader.h"
#include "mlxx/engine/request.h"

namespace mlxx::api {

// What an answer must follow, and the field that says so.
struct GivenConstraint {
  GivenConstraint(text::GrammarKind kind, std::string grammar, std::string name)
      : param(std::move(name)) {
    constraint.kind = kind;
    constraint.grammar = std::move(grammar);
  }
  engine::Constraint constraint;
  std::string param;
};

// Of a JSON schema (an object, true or false), as json_schema of `param`.
GivenConstraint schema_constraint(
    const OrderedJson& schema,
    std::string param,
    const Limits& limits);

// grammar, regex, json_schema and their other names in kGenerationFields. 400
// for more than one of them.
std::optional<GivenConstraint> read_constraint(
    const FieldReader& fields,
    const Limits& limits);
// response_format; nothing for text.
std::optional<GivenConstraint> read_response_format(
    const FieldReader& fields,
    const Limits& limits);

// Either of the two; 400 for both.
std::optional<GivenConstraint> only_one(
    std::optional<GivenConstraint> first,
    std::optional<GivenConstraint> second);

// An answer that follows the JSON schema `schema` or makes calls, as the Lark
// grammar `calls` has them.
engine::Constraint schema_or_calls(
    const engine::Constraint& schema,
    const std::string& calls);

// 400 with `param` for a constraint that cannot be enforced. Compiles it: some
// milliseconds, and up to 0.5 s for the first one of a model.
void check_constraint(
    const engine::Constraint& constraint,
    const engine::ModelText& model,
    const std::string& param);

}  // namespace mlxx::api
