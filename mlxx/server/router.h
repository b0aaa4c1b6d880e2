#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/server/http_handler.h"

namespace mlxx::server {

// What the placeholders of a route's pattern stood for, in order.
using PathParts = std::vector<std::string>;
using RouteHandler =
    std::function<Reply(const HttpRequest& request, const PathParts& parts)>;

struct Route {
  std::string method;  // GET serves HEAD too
  // "/v1/responses/{}/input_items"; "{*}" at the end takes all that follows.
  std::string pattern;
  RouteHandler handler;
  bool immediate = false;  // on the thread of the connection
  bool open = false;       // without a key
  bool status = false;     // also when all connections are taken
};

class Router {
 public:
  void add(Route route);
  void add(std::string method, std::string pattern, RouteHandler handler);

  struct Match {
    const Route* route = nullptr;  // null: none
    PathParts parts;
    // Methods of the routes with that path, "GET, HEAD, POST".
    std::string allowed;
  };
  Match find(std::string_view method, std::string_view path) const;

 private:
  std::vector<Route> routes_;
};

}  // namespace mlxx::server
