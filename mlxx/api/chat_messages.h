#pragma once

#include "mlxx/api/field_reader.h"
#include "mlxx/base/json.h"

namespace mlxx::api {

// "messages" as templates take them: known keys only, content as one string,
// role developer as system. Errors name the message: "messages[2].content".
OrderedJson read_messages(const FieldReader& fields);

}  // namespace mlxx::api
