#include <algorithm>
#include <charconv>
#include <ctime>
#include <optional>

#include <nlohmann/json.hpp>

#include "mlxx/api/response_store.h"
#include "mlxx/server/routes.h"

namespace mlxx::server {

namespace {

constexpr int kDefaultItems = 20;
constexpr int kMaxItems = 100;

[[noreturn]] void unknown_response() {
  throw api::RequestError(
      404,
      "[response] no response of that id is stored",
      "response_id",
      "response_not_found");
}

api::StoredResponse find(const Services& services, const std::string& id) {
  if (services.store) {
    auto found = services.store->find(id, std::time(nullptr));
    if (found) {
      return std::move(*found);
    }
  }
  unknown_response();
}

HttpResponse respond(const OrderedJson& body) {
  return json_response(
      body.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

Reply remove(const Services& services, const std::string& id) {
  if (!services.store || !services.store->remove(id, std::time(nullptr))) {
    unknown_response();
  }
  return respond(
      {{"id", id}, {"object", "response.deleted"}, {"deleted", true}});
}

// What one page of a list is asked to hold.
struct Page {
  int limit = kDefaultItems;
  bool newest_first = true;
  std::string after;
};

Page read_page(const HttpRequest& request) {
  Page page;
  if (auto limit = query_value(request.target, "limit")) {
    auto end = limit->data() + limit->size();
    auto [stop, error] = std::from_chars(limit->data(), end, page.limit);
    if (error != std::errc() || stop != end || page.limit < 1 ||
        page.limit > kMaxItems) {
      throw api::RequestError(
          400,
          "[limit] must be a number from 1 to 100",
          "limit",
          "invalid_value");
    }
  }
  if (auto order = query_value(request.target, "order")) {
    if (*order != "asc" && *order != "desc") {
      throw api::RequestError(
          400,
          "[order] must be asc or desc",
          "order",
          "invalid_value");
    }
    page.newest_first = *order == "desc";
  }
  page.after = query_value(request.target, "after").value_or("");
  return page;
}

std::string id_of(const OrderedJson& item) {
  auto id = item.find("id");
  return id != item.end() && id->is_string() ? id->get<std::string>() : "";
}

Reply list_items(
    const Services& services,
    const HttpRequest& request,
    const std::string& id) {
  auto page = read_page(request);
  auto stored = find(services, id);
  std::vector<OrderedJson> items(stored.input.begin(), stored.input.end());
  if (page.newest_first) {
    std::reverse(items.begin(), items.end());
  }
  auto first = items.begin();
  if (!page.after.empty()) {
    first = std::find_if(items.begin(), items.end(), [&](const auto& item) {
      return id_of(item) == page.after;
    });
    if (first == items.end()) {
      throw api::RequestError(
          400,
          "[after] no input item has that id",
          "after",
          "invalid_value");
    }
    ++first;
  }
  auto count = std::min<std::ptrdiff_t>(page.limit, items.end() - first);
  OrderedJson data(std::vector<OrderedJson>(first, first + count));
  OrderedJson body = {{"object", "list"}};
  body["first_id"] =
      data.empty() ? OrderedJson() : OrderedJson(id_of(data.front()));
  body["last_id"] =
      data.empty() ? OrderedJson() : OrderedJson(id_of(data.back()));
  body["has_more"] = first + count != items.end();
  body["data"] = std::move(data);
  return respond(body);
}

}  // namespace

void add_stored_response_routes(Router& router, Services& services) {
  Route get;
  get.method = "GET";
  get.pattern = "/v1/responses/{}";
  get.handler = [&services](const HttpRequest&, const PathParts& parts) {
    return Reply(respond(find(services, parts[0]).response));
  };
  router.add(std::move(get));
  Route erase;
  erase.method = "DELETE";
  erase.pattern = "/v1/responses/{}";
  erase.handler = [&services](const HttpRequest&, const PathParts& parts) {
    return remove(services, parts[0]);
  };
  router.add(std::move(erase));
  Route items;
  items.method = "GET";
  items.pattern = "/v1/responses/{}/input_items";
  items.handler =
      [&services](const HttpRequest& request, const PathParts& parts) {
        return list_items(services, request, parts[0]);
      };
  router.add(std::move(items));
}

}  // namespace mlxx::server
