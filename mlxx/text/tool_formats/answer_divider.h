#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/text/tool_format.h"
#include "mlxx/text/tool_formats/section_reader.h"

namespace mlxx::text {

// Reasoning between two markers, sections of calls behind opening markers, the
// rest content. White space beside a marker belongs to it.
class AnswerDivider : public AnswerParser {
 public:
  AnswerDivider(
      std::optional<ReasoningFormat> reasoning,
      bool reasoning_open,
      Sections sections);

  AnswerPiece step(std::string_view text) override;
  AnswerPiece flush() override;

 private:
  enum class Place { start, reasoning, content, section };

  void advance(bool last, AnswerPiece& out);
  // Each takes from text_ at at_; false if it needs more.
  bool read_start(bool last);
  bool read_reasoning(bool last, AnswerPiece& out);
  bool read_content(bool last, AnswerPiece& out);
  bool read_section(bool last, AnswerPiece& out);
  void give(AnswerPiece& out, std::string_view content);
  std::string_view rest() const {
    return std::string_view(text_).substr(at_);
  }

  std::optional<ReasoningFormat> reasoning_;
  Sections sections_;
  std::vector<std::string> markers_;  // of content: sections, then reasoning
  std::string text_;
  size_t at_ = 0;
  Place place_ = Place::start;
  bool skip_spaces_ = false;      // markup ended here
  bool reasoning_began_ = false;  // its text has begun
  bool content_began_ = false;
  bool reasoning_possible_ = true;  // a marker at the start still counts
  std::unique_ptr<SectionReader> reader_;
  size_t section_end_of_marker_ = 0;  // in text_, as long as no call was begun
  size_t section_start_ = 0;          // spaces and marker
  int calls_before_ = 0;
  CallWriter calls_;
};

}  // namespace mlxx::text
