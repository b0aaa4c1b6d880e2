#include "mlxx/api/fields.h"

#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace mlxx::api {

std::string_view to_string(FieldStatus status) {
  switch (status) {
    case FieldStatus::honoured:
      return "honoured";
    case FieldStatus::hint:
      return "hint";
    case FieldStatus::refused:
      return "refused";
  }
  return "unknown";
}

const Field* FieldTable::find(std::string_view path) const {
  for (const Field& field : fields) {
    if (field.path == path) {
      return &field;
    }
  }
  return nullptr;
}

bool FieldTable::has_below(std::string_view path) const {
  for (const Field& field : fields) {
    if (field.path.size() > path.size() && field.path.starts_with(path) &&
        (field.path[path.size()] == '.' || field.path[path.size()] == '[')) {
      return true;
    }
  }
  return false;
}

std::span<const FieldTable* const> field_tables() {
  static const std::array kTables = {
      &chat_fields(),
      &completion_fields(),
      &message_fields(),
      &count_tokens_fields(),
      &response_fields(),
      &embedding_fields(),
      &rerank_fields(),
      &tokenize_fields(),
      &detokenize_fields(),
  };
  return kTables;
}

std::string field_tables_markdown() {
  std::string out;
  for (const FieldTable* table : field_tables()) {
    out += fmt::format(
        "### `{}`\n\n| field | status | |\n|---|---|---|\n",
        table->endpoint);
    for (const Field& field : table->fields) {
      std::string note;
      for (char letter : field.note) {
        if (letter == '|') {
          note += '\\';
        }
        note += letter;
      }
      out += fmt::format(
          "| `{}` | {} | {} |\n",
          field.path,
          to_string(field.status),
          note);
    }
    out += "\n";
  }
  return out;
}

OrderedJson field_tables_json() {
  OrderedJson out = OrderedJson::object();
  for (const FieldTable* table : field_tables()) {
    OrderedJson fields = OrderedJson::array();
    for (const Field& field : table->fields) {
      fields.push_back(
          {{"path", field.path},
           {"status", to_string(field.status)},
           {"example", OrderedJson::parse(field.example)},
           {"note", field.note}});
    }
    out[std::string(table->endpoint)] = {
        {"minimal", OrderedJson::parse(table->minimal)},
        {"fields", std::move(fields)}};
  }
  return out;
}

}  // namespace mlxx::api
