#include <memory>
#include <utility>

#include <nlohmann/json.hpp>

#include "mlxx/server/later_reply.h"
#include "mlxx/server/routes.h"

namespace mlxx::server {

namespace {

OrderedJson describe(const engine::AdapterEntry& entry) {
  return {
      {"id", entry.name},
      {"object", "adapter"},
      {"model", entry.model},
      {"folder", entry.folder},
      {"format", entry.format},
      {"dora", entry.dora},
      {"rank", entry.rank},
      {"modules", entry.modules},
      {"bytes", entry.bytes}};
}

std::string dump(const OrderedJson& body) {
  return body.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// A name in a body; absent counts as "".
std::string read_name(const OrderedJson& body, const char* field) {
  auto found = body.find(field);
  if (found == body.end() || found->is_null()) {
    return "";
  }
  if (!found->is_string()) {
    throw api::RequestError(
        400,
        "[adapters] a name is a string",
        field,
        "invalid_type");
  }
  return found->get<std::string>();
}

template <typename MakeBody>
Reply ask(
    Services& services,
    const HttpRequest& request,
    AdapterCommand command,
    MakeBody make_body) {
  auto later = std::make_shared<Later>();
  services.engine->adapters(
      std::move(command),
      answer_into<AdapterAnswer>(later, request, {}, make_body));
  return std::make_unique<LaterReply>(std::move(later));
}

Reply list(Services& services, const HttpRequest& request) {
  return ask(services, request, {}, [](const AdapterAnswer& answer) {
    OrderedJson data = OrderedJson::array();
    for (const auto& entry : answer.entries) {
      data.push_back(describe(entry));
    }
    return dump({{"object", "list"}, {"data", std::move(data)}});
  });
}

Reply mount(Services& services, const HttpRequest& request) {
  auto body = read_body(request, services);
  AdapterCommand command;
  command.action = AdapterCommand::Action::mount;
  command.model = find_model(body, services)->name;
  command.folder = read_name(body, "folder");
  command.name = read_name(body, "name");
  if (command.folder.empty()) {
    throw api::RequestError(
        400,
        "[folder] names what to mount, a folder of --adapters-dir",
        "folder",
        "missing");
  }
  if (command.name.empty()) {
    command.name = command.folder;
  }
  return ask(
      services,
      request,
      std::move(command),
      [](const AdapterAnswer& answer) {
        return dump(describe(answer.entries.at(0)));
      });
}

Reply unmount(
    Services& services,
    const HttpRequest& request,
    const std::string& name) {
  AdapterCommand command;
  command.action = AdapterCommand::Action::unmount;
  OrderedJson body = OrderedJson::object();
  body["model"] =
      query_value(request.target, "model").value_or("default_model");
  command.model = find_model(body, services)->name;
  command.name = name;
  return ask(
      services,
      request,
      std::move(command),
      [name](const AdapterAnswer&) {
        return dump({{"id", name}, {"object", "adapter"}, {"deleted", true}});
      });
}

}  // namespace

void add_adapter_routes(Router& router, Services& services) {
  router.add(
      "GET",
      "/v1/adapters",
      [&services](const HttpRequest& request, const PathParts&) {
        return list(services, request);
      });
  router.add(
      "POST",
      "/v1/adapters",
      [&services](const HttpRequest& request, const PathParts&) {
        return mount(services, request);
      });
  router.add(
      "DELETE",
      "/v1/adapters/{}",
      [&services](const HttpRequest& request, const PathParts& parts) {
        return unmount(services, request, parts[0]);
      });
}

}  // namespace mlxx::server
