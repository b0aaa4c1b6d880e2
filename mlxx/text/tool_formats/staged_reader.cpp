#include "mlxx/text/tool_formats/staged_reader.h"

namespace mlxx::text {

Reading StagedReader::read(
    std::string_view text,
    bool last,
    size_t& used,
    CallWriter& calls) {
  while (true) {
    size_t took = 0;
    Next next = read_place(text.substr(used), last, took, calls);
    used += took;
    switch (next) {
      case Next::go_on:
        break;
      case Next::more:
        return Reading::more;
      case Next::done:
        return Reading::done;
      case Next::not_a_call:
        return Reading::not_a_call;
    }
  }
}

StagedReader::Next StagedReader::as_next(Reading reading) {
  switch (reading) {
    case Reading::more:
      return Next::more;
    case Reading::done:
      return Next::done;
    case Reading::not_a_call:
      return Next::not_a_call;
  }
  return Next::not_a_call;
}

}  // namespace mlxx::text
