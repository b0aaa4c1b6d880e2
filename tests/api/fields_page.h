#pragma once

#include <string>

#include "mlxx/api/fields.h"

namespace mlxx::api {

// docs/request-fields.md as it should be.
inline std::string fields_page() {
  std::string page =
      "# Fields of requests\n\n"
      "What each endpoint of the server does with each field that it knows. "
      "This page is made from the tables that the server reads requests with: "
      "`build/tests/openai_transcripts page > docs/request-fields.md`.\n\n"
      "- honoured: the field does what it says; wrong types and values are "
      "status 400 with the field as `param`. An explicit null is the same as "
      "no field.\n"
      "- hint: accepted with any value; it changes no output.\n"
      "- refused: status 400 with the field as `param`, unless it is null.\n"
      "- Any other name is ignored and listed in the header "
      "`X-Mlxx-Ignored`; with `--strict` it is status 400.\n\n"
      "`POST /apply-template` reads the body of `POST /v1/chat/completions`. "
      "`[]` stands for each item of a list.\n\n";
  page += field_tables_markdown();
  page.pop_back();
  return page;
}

}  // namespace mlxx::api
