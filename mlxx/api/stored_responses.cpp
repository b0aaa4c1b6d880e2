#include "mlxx/api/stored_responses.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "mlxx/api/answer.h"
#include "mlxx/api/field_reader.h"
#include "mlxx/api/json_writer.h"

namespace mlxx::api {

namespace {

constexpr int64_t kMaxItems = 100;

[[noreturn]] void fail_unknown(std::string_view id) {
  throw RequestError(
      404,
      fmt::format("[response] there is no response '{}'", printable_name(id)),
      "response_id",
      "response_not_found");
}

StoredResponse
find(ResponseStore* store, std::string_view id, int64_t unix_time) {
  if (store) {
    if (auto found = store->find(id, unix_time)) {
      return *std::move(found);
    }
  }
  fail_unknown(id);
}

}  // namespace

std::string
stored_response(ResponseStore* store, std::string_view id, int64_t unix_time) {
  return find(store, id, unix_time).response;
}

std::string delete_stored_response(
    ResponseStore* store,
    std::string_view id,
    int64_t unix_time) {
  if (!store || !store->remove(id, unix_time)) {
    fail_unknown(id);
  }
  return write_json({{"id", id}, {"object", "response"}, {"deleted", true}});
}

std::string stored_input_items(
    ResponseStore* store,
    std::string_view id,
    const ItemPage& page,
    int64_t unix_time) {
  if (page.limit < 1 || page.limit > kMaxItems) {
    throw RequestError(
        400,
        fmt::format("[limit] must be from 1 to {}", kMaxItems),
        "limit",
        "invalid_value");
  }
  OrderedJson items =
      parse_ordered_json(find(store, id, unix_time).input, "stored input");
  if (page.newest_first) {
    std::reverse(items.begin(), items.end());
  }
  auto id_of = [](const OrderedJson& item) { return item.value("id", ""); };
  auto first = items.begin();
  if (!page.after.empty()) {
    first = std::find_if(items.begin(), items.end(), [&](const auto& item) {
      return id_of(item) == page.after;
    });
    if (first == items.end()) {
      throw RequestError(
          400,
          "[after] is no item's id",
          "after",
          "invalid_value");
    }
    ++first;
  }
  auto count = std::min<std::ptrdiff_t>(page.limit, items.end() - first);
  OrderedJson data = OrderedJson::array();
  std::copy(first, first + count, std::back_inserter(data));
  OrderedJson out = {
      {"object", "list"},
      {"first_id", data.empty() ? "" : id_of(data.front())},
      {"last_id", data.empty() ? "" : id_of(data.back())},
      {"has_more", first + count != items.end()}};
  out["data"] = std::move(data);
  return write_json(out);
}

}  // namespace mlxx::api
