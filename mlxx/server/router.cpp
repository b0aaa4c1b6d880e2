#include "mlxx/server/router.h"

#include <optional>

namespace mlxx::server {

namespace {

constexpr std::string_view kRest = "{*}";

std::string_view take_segment(std::string_view& path) {
  auto end = path.find('/', 1);
  auto segment = path.substr(0, end);
  path.remove_prefix(segment.size());
  return segment;
}

std::optional<PathParts> match(
    std::string_view pattern,
    std::string_view path) {
  PathParts parts;
  while (!pattern.empty() && !path.empty()) {
    auto wanted = take_segment(pattern);
    if (wanted.substr(1) == kRest) {
      if (path.size() < 2) {
        return std::nullopt;
      }
      parts.emplace_back(path.substr(1));
      return parts;
    }
    auto given = take_segment(path);
    if (wanted == "/{}" && given.size() > 1) {
      parts.emplace_back(given.substr(1));
    } else if (wanted != given) {
      return std::nullopt;
    }
  }
  return pattern.empty() && path.empty() ? std::optional(parts) : std::nullopt;
}

}  // namespace

void Router::add(Route route) {
  routes_.push_back(std::move(route));
}

void Router::add(
    std::string method,
    std::string pattern,
    RouteHandler handler) {
  add(
      {.method = std::move(method),
       .pattern = std::move(pattern),
       .handler = std::move(handler)});
}

Router::Match Router::find(std::string_view method, std::string_view path)
    const {
  Match result;
  auto allow = [&](std::string_view name) {
    if (!result.allowed.empty()) {
      result.allowed.append(", ");
    }
    result.allowed.append(name);
  };
  for (const auto& route : routes_) {
    auto parts = match(route.pattern, path);
    if (!parts) {
      continue;
    }
    allow(route.method);
    if (route.method == "GET") {
      allow("HEAD");
    }
    bool same =
        route.method == method || (route.method == "GET" && method == "HEAD");
    if (same && !result.route) {
      result.route = &route;
      result.parts = std::move(*parts);
    }
  }
  return result;
}

}  // namespace mlxx::server
