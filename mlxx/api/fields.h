#pragma once

#include <span>
#include <string>
#include <string_view>

#include "mlxx/base/json.h"

namespace mlxx::api {

// What becomes of a field of a request.
enum class FieldStatus {
  honoured,  // does what it says
  hint,      // accepted, whatever its value: it changes no output
  refused,   // 400 that names it, unless it is null
};
std::string_view to_string(FieldStatus status);

// One field of an endpoint. Fields of nested objects have paths:
// "stream_options.include_usage", "messages[].content[].text".
struct Field {
  std::string_view path;
  FieldStatus status;
  // A value of the outermost field, as JSON: taken, or refused if `status` says
  // so. Tests send each of them.
  std::string_view example;
  std::string_view note;
  // A value of the outermost field that an honoured field refuses.
  std::string_view refused_example = "";
};

// All fields that an endpoint knows. What requests are read with (FieldReader),
// what docs/server.md shows and what the client packages are compared with.
// Whatever is not in it is ignored, by name, or refused (Limits::strict).
struct FieldTable {
  std::string_view endpoint;  // "POST /v1/chat/completions"
  std::string_view minimal;   // the smallest body that is taken, as JSON
  std::span<const Field> fields;

  // nullptr: unknown.
  const Field* find(std::string_view path) const;
  // Whether there are fields below that path.
  bool has_below(std::string_view path) const;
};

// Of /v1/chat/completions, and of /apply-template, which reads the same body.
const FieldTable& chat_fields();
const FieldTable& completion_fields();
const FieldTable& message_fields();
const FieldTable& count_tokens_fields();
const FieldTable& response_fields();
const FieldTable& embedding_fields();
const FieldTable& rerank_fields();
const FieldTable& tokenize_fields();
const FieldTable& detokenize_fields();

// Of every endpoint, in the order of the documents.
std::span<const FieldTable* const> field_tables();

// One section with one table for each endpoint, as docs/server.md has it.
std::string field_tables_markdown();
// {"POST /v1/...": {"minimal": {...}, "fields": [{"path", "status", "example",
// "note"}]}}, for tests in other languages.
OrderedJson field_tables_json();

}  // namespace mlxx::api
