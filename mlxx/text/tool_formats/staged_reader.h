#pragma once

#include "mlxx/text/tool_formats/section_reader.h"

namespace mlxx::text {

// A reader that goes from one place in the markup to the next, each of which
// has rules of its own.
class StagedReader : public SectionReader {
 public:
  Reading
  read(std::string_view text, bool last, size_t& used, CallWriter& calls) final;

 protected:
  enum class Next { go_on, more, done, not_a_call };

  // Reads `text` at the place where it is; `took`: bytes of it.
  virtual Next read_place(
      std::string_view text,
      bool last,
      size_t& took,
      CallWriter& calls) = 0;
  // Of another reader that has the rest of the section.
  static Next as_next(Reading reading);
};

}  // namespace mlxx::text
