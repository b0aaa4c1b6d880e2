#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/text/tool_formats/call_writer.h"

namespace mlxx::text {

enum class Reading {
  more,        // needs text that has not come
  done,        // what is left is ordinary text
  not_a_call,  // only as long as no call was begun: the marker was prose
};

// Reads what follows an opening marker: one call or several.
class SectionReader {
 public:
  virtual ~SectionReader() = default;
  // Takes the first `used` bytes of `text`; the rest is handed in again, with
  // more behind it. `last`: no more comes.
  virtual Reading
  read(std::string_view text, bool last, size_t& used, CallWriter& calls) = 0;
};

// Where sections start.
struct Sections {
  std::vector<std::string> openings;
  // Openings only if nothing but white space came before.
  std::vector<std::string> openings_at_start;
  std::function<std::unique_ptr<SectionReader>(std::string_view opening)> open;
};

}  // namespace mlxx::text
