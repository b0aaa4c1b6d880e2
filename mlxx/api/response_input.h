#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mlxx/api/answer.h"
#include "mlxx/api/conversation_list.h"
#include "mlxx/api/field_reader.h"
#include "mlxx/api/response_store.h"
#include "mlxx/base/json.h"

namespace mlxx::api {

// "input" as items in the form in which they are stored and listed: each with
// an id, contents as lists of parts. References are replaced by the items that
// they name, which are looked for in `earlier` and in the store.
OrderedJson read_response_input(
    const FieldReader& fields,
    const OrderedJson& earlier,
    const Context& context);

// The conversation before this turn, from its stored turns: what was said, as
// items of the same form.
OrderedJson items_of_turns(const std::vector<StoredResponse>& turns);

// Adds items to what the model reads.
void add_items(ConversationList& out, const OrderedJson& items);

std::vector<std::string> item_ids(const OrderedJson& items);

}  // namespace mlxx::api
