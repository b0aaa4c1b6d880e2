#include "mlxx/api/model_list.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "mlxx/api/answer.h"
#include "mlxx/api/field_reader.h"
#include "mlxx/api/json_writer.h"
#include "mlxx/base/utf8.h"

namespace mlxx::api {

namespace {

OrderedJson model_json(const engine::ListedModel& model) {
  return {
      {"id", model.name},
      {"object", "model"},
      {"created", model.created},
      {"owned_by", "mlxx"},
      {"loaded", model.loaded}};
}

}  // namespace

std::string model_list_body(const std::vector<engine::ListedModel>& models) {
  OrderedJson data = OrderedJson::array();
  for (const engine::ListedModel& model : models) {
    data.push_back(model_json(model));
  }
  OrderedJson out = {{"object", "list"}};
  out["data"] = std::move(data);
  return write_json(out);
}

std::string model_body(
    const std::vector<engine::ListedModel>& models,
    std::string_view name) {
  for (const engine::ListedModel& model : models) {
    if (model.name == name) {
      return write_json(model_json(model));
    }
  }
  throw RequestError(
      404,
      fmt::format("[model] there is no \"{}\"", escape_line(name, 200)),
      "model",
      "model_not_found");
}

std::string requested_model(const OrderedJson& body) {
  if (!body.is_object()) {
    throw RequestError(
        400,
        fmt::format("[body] {}", type_problem("an object", body)));
  }
  const auto found = body.find("model");
  if (found == body.end() || found->is_null()) {
    return "";
  }
  if (!found->is_string()) {
    throw RequestError(
        400,
        fmt::format("[model] {}", type_problem("a string", *found)),
        "model",
        "invalid_type");
  }
  const auto& name = found->get_ref<const std::string&>();
  if (name.size() > 1024) {
    throw RequestError(
        400,
        "[model] has more than 1024 bytes",
        "model",
        "string_above_max_length");
  }
  const bool controls = std::any_of(name.begin(), name.end(), [](char c) {
    return static_cast<uint8_t>(c) < 0x20 || c == 0x7f;
  });
  if (controls) {
    throw RequestError(
        400,
        "[model] has control characters",
        "model",
        "invalid_value");
  }
  return name == "default_model" ? "" : name;
}

}  // namespace mlxx::api
