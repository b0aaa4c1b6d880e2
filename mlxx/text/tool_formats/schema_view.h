#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/base/json.h"

// Looking into the JSON schema of a tool's parameters.
namespace mlxx::text {

struct SchemaProperty {
  std::string name;
  const OrderedJson* schema = nullptr;
  bool required = false;
};

// The schema that a chain of $ref leads to. invalid_request naming `place` for
// a reference outside of the document, to nothing, or in a circle.
const OrderedJson& resolved(
    const OrderedJson& root,
    const OrderedJson& schema,
    std::string_view place);

// Of an object that says nothing but its properties; the ones that are only
// named in "required" come last. invalid_request naming `place` and the
// keyword if there is another that restricts the object.
std::vector<SchemaProperty> object_properties(
    const OrderedJson& object,
    std::string_view place);

// invalid_request naming keyword and place if `schema` has another keyword
// than `allowed` (annotations are passed over).
void allow_keywords(
    const OrderedJson& schema,
    const std::vector<std::string_view>& allowed,
    std::string_view place);

// Whether there is another keyword than those and annotations.
bool has_other_keywords(
    const OrderedJson& schema,
    const std::vector<std::string_view>& allowed);

// A part of a document as a document of its own: with its definitions.
OrderedJson part_of_schema(const OrderedJson& root, const OrderedJson& schema);

// Without descriptions, titles, examples and the like, which have no part in
// what is allowed and may hold anything.
OrderedJson without_annotations(const OrderedJson& schema);

// The names in "type"; empty: any.
std::vector<std::string> type_names(const OrderedJson& schema);

}  // namespace mlxx::text
