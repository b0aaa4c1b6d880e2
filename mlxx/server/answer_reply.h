#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "mlxx/server/http_handler.h"
#include "mlxx/server/services.h"

namespace mlxx::server {

// Hands the requests of `answer` to the engine; the reply grows with its
// events. A stream's head waits for the first event, so that what fails before
// has a status of its own. `adapter` is for requests that name none. Throws
// what the engine refuses with.
std::unique_ptr<PendingReply> make_answer_reply(
    Services& services,
    const HttpRequest& request,
    std::unique_ptr<api::Answer> answer,
    const std::string& adapter = "");

}  // namespace mlxx::server
