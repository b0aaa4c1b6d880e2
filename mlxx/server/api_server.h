#pragma once

#include <functional>
#include <memory>

#include "mlxx/server/access_rules.h"
#include "mlxx/server/http_handler.h"
#include "mlxx/server/router.h"
#include "mlxx/server/services.h"

namespace mlxx::server {

// What is logged of one request: nothing of its content.
struct AccessRecord {
  const HttpRequest& request;
  const Served& served;
};
using AccessLog = std::function<void(const AccessRecord&)>;

// The endpoints: access, routes, errors in the shape of each protocol.
class ApiServer : public HttpHandler {
 public:
  ApiServer(
      std::shared_ptr<Services> services,
      const AccessOptions& access,
      AccessLog log);

  std::optional<HttpResponse> refuse(HttpRequest& request, bool only_status)
      override;
  bool is_immediate(const HttpRequest& request) override;
  Reply handle(const HttpRequest& request) override;
  HttpResponse error_response(
      const HttpRequest& request,
      int status,
      const std::string& message) override;
  void served(const HttpRequest& request, const Served& how) override;

 private:
  HttpResponse preflight(const HttpRequest& request) const;

  std::shared_ptr<Services> services_;
  AccessRules access_;
  AccessLog log_;
  Router router_;
};

}  // namespace mlxx::server
