#pragma once

#include <string>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/engine/model_texts.h"

namespace mlxx::api {

// {"object": "list", "data": [...]} of GET /v1/models.
std::string model_list_body(const std::vector<engine::ListedModel>& models);
// GET /v1/models/NAME; 404 with code model_not_found for none of them.
std::string model_body(
    const std::vector<engine::ListedModel>& models,
    std::string_view name);

// The "model" of a body, as ModelTexts::text() takes it: "" for an absent one
// and for "default_model". 400 for what is no name.
std::string requested_model(const OrderedJson& body);

}  // namespace mlxx::api
