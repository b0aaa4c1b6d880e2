#pragma once

#include <exception>
#include <memory>

#include "mlxx/base/json.h"
#include "mlxx/engine/vectors.h"
#include "mlxx/server/engine_port.h"

// What goes between the server and an engine in another process, as JSON
// values. Both are of one build, so there are no versions; what does not read
// as it should is an internal error.
namespace mlxx::server {

template <typename T>
Json to_message(const T& value);

template <typename T>
T from_message(const Json& message);

// Kind, message and what Busy and api::RequestError say besides.
Json error_to_message(const std::exception& error);
std::shared_ptr<const Error> error_from_message(const Json& message);
std::exception_ptr to_exception(const std::shared_ptr<const Error>& error);

}  // namespace mlxx::server
