#include "mlxx/base/error.h"

#include "mlxx/base/utf8.h"

namespace mlxx {

std::string_view to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_request:
      return "invalid_request";
    case ErrorKind::unsupported:
      return "unsupported";
    case ErrorKind::not_found:
      return "not_found";
    case ErrorKind::bad_file:
      return "bad_file";
    case ErrorKind::out_of_memory:
      return "out_of_memory";
    case ErrorKind::cancelled:
      return "cancelled";
    case ErrorKind::internal:
      return "internal";
  }
  return "internal";
}

Error::Error(ErrorKind kind, std::string_view message)
    : kind_(kind), message_(escape_line(message)) {}

}  // namespace mlxx
