#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/api/fields.h"
#include "mlxx/base/json.h"

namespace mlxx::api {

// Typed reading of the body of a request, or of an object inside of it, by the
// table of its endpoint. Every refusal is a RequestError of status 400 with the
// path of the field as its param. An explicit null counts as absent. The body
// and the list of ignored names must outlive the reader.
class FieldReader {
 public:
  // Refuses a body that is no object, fields that the table refuses and, if
  // `strict`, fields that it does not know; the latter are else noted in
  // `ignored`, by their paths in the table.
  FieldReader(
      const OrderedJson& body,
      const FieldTable& table,
      bool strict,
      std::vector<std::string>& ignored);

  // Each asks for a field that the table calls honoured.
  const OrderedJson* find(std::string_view name) const;
  bool has(std::string_view name) const {
    return find(name) != nullptr;
  }
  std::optional<bool> boolean(std::string_view name) const;
  // 1.0 counts as 1.
  std::optional<int64_t>
  integer(std::string_view name, int64_t min, int64_t max) const;
  std::optional<double> number(std::string_view name, double min, double max)
      const;
  std::optional<std::string> string(
      std::string_view name,
      size_t max_bytes = size_t{16} << 20) const;
  std::string required_string(
      std::string_view name,
      size_t max_bytes = size_t{16} << 20) const;
  // One of `allowed`.
  std::optional<std::string> word(
      std::string_view name,
      std::initializer_list<std::string_view> allowed) const;
  // A list of at most `max_items`.
  const OrderedJson* list(std::string_view name, size_t max_items) const;
  // Readers of nested objects, with the same table.
  std::optional<FieldReader> object(std::string_view name) const;
  std::vector<FieldReader> objects(std::string_view name, size_t max_items)
      const;

  // 400: "[path] what".
  [[noreturn]] void refuse(
      std::string_view name,
      std::string_view what,
      std::string_view code = "") const;
  [[noreturn]] void missing(std::string_view name) const;

  // The path of a field in this body: "messages[3].role".
  std::string path(std::string_view name) const;
  const OrderedJson& body() const {
    return *body_;
  }

 private:
  FieldReader(
      const OrderedJson& body,
      const FieldTable& table,
      bool strict,
      std::vector<std::string>& ignored,
      std::string path,
      std::string table_path);

  void check_names() const;

  const OrderedJson* body_;
  const FieldTable* table_;
  bool strict_;
  std::vector<std::string>* ignored_;
  std::string path_;        // "messages[3]", "" for the body itself
  std::string table_path_;  // "messages[]"
};

// "must be a string, is a number" and the like, for values that are read by
// hand.
std::string type_problem(std::string_view wanted, const OrderedJson& value);

// A whole number of that range: 5 and 5.0. Nothing if it is none.
std::optional<int64_t>
whole_number(const OrderedJson& value, int64_t min, int64_t max);

// A name that a client sent, as it may stand in headers and messages: short,
// printable ASCII.
std::string printable_name(std::string_view name);

}  // namespace mlxx::api
