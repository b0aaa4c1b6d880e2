#include "mlxx/api/json_writer.h"

#include <nlohmann/json.hpp>

namespace mlxx::api {

std::string write_json(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string sse_frame(const OrderedJson& data, std::string_view event) {
  std::string out;
  if (!event.empty()) {
    out += "event: ";
    out += event;
    out += '\n';
  }
  out += "data: ";
  out += write_json(data);
  out += "\n\n";
  return out;
}

}  // namespace mlxx::api
