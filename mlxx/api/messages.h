#pragma once

#include <string>
#include <vector>

#include "mlxx/api/answer.h"

namespace mlxx::api {

// {"input_tokens": n} for the body of /v1/messages/count_tokens: as many as
// /v1/messages reports for the same messages, cached ones included. `ignored`
// gets the names of fields that were ignored. Errors: RequestError.
std::string count_message_tokens(
    const OrderedJson& body,
    const Context& context,
    std::vector<std::string>& ignored);

}  // namespace mlxx::api
