#pragma once

#include <functional>
#include <string>

#include "mlxx/hub/http_client.h"
#include "mlxx/hub/hub_settings.h"

namespace mlxx::hub {

// True for a status that may be another one in a moment: 408, 425, 429, 5xx.
bool is_temporary(int status);

// Pauses between the attempts of one request: doubled each time, or as long as
// the server asks for.
class Retry {
 public:
  Retry(const HubSettings& settings, std::function<void()> on_tick);

  // After a failed attempt. Sleeps, calling on_tick. internal, with what the
  // last attempt met, if too many in a row failed; an attempt that brought
  // something (`progressed`) starts a new row.
  void wait_or_fail(
      const HttpResult& result,
      const std::string& url,
      bool progressed);

 private:
  void sleep(std::chrono::milliseconds duration) const;

  const HubSettings* settings_;
  std::function<void()> on_tick_;
  int failures_ = 0;  // in this row
  int total_failures_ = 0;
};

}  // namespace mlxx::hub
