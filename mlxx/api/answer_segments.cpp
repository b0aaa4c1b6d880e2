#include "mlxx/api/answer_segments.h"

#include <algorithm>

namespace mlxx::api {

namespace {

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// Bytes of the character that begins with `lead`, in valid UTF-8.
size_t character_bytes(char lead) {
  auto byte = static_cast<unsigned char>(lead);
  return byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

}  // namespace

AnswerSegments::AnswerSegments(std::unique_ptr<text::AnswerParser> parser)
    : parser_(std::move(parser)) {}

std::vector<SegmentStep> AnswerSegments::step(std::string_view text) {
  Steps out;
  if (!parser_) {
    append(SegmentKind::text, text, out);
    return out;
  }
  // A piece does not say in which order its parts came. Of one character they
  // come in the order of take().
  for (size_t at = 0; at < text.size();) {
    size_t bytes = std::min(character_bytes(text[at]), text.size() - at);
    take(parser_->step(text.substr(at, bytes)), out);
    at += bytes;
  }
  return out;
}

std::vector<SegmentStep> AnswerSegments::flush() {
  Steps out;
  if (parser_) {
    take(parser_->flush(), out);
  }
  end(out);
  spaces_.clear();
  return out;
}

void AnswerSegments::take(const text::AnswerPiece& piece, Steps& out) {
  auto goes_on = [&](const text::ToolCallPiece& call) {
    return open_ && kind_ == SegmentKind::call && call.index == call_;
  };
  size_t calls = 0;
  while (calls < piece.calls.size() && goes_on(piece.calls[calls])) {
    take_call(piece.calls[calls++], out);
  }
  append(SegmentKind::reasoning, piece.reasoning, out);
  append(SegmentKind::text, piece.content, out);
  for (; calls < piece.calls.size(); ++calls) {
    take_call(piece.calls[calls], out);
  }
}

void AnswerSegments::take_call(const text::ToolCallPiece& call, Steps& out) {
  if (!open_ || kind_ != SegmentKind::call || call.index != call_) {
    begin(SegmentKind::call, call.name, out);
    call_ = call.index;
  }
  append(SegmentKind::call, call.arguments, out);
}

void AnswerSegments::append(
    SegmentKind kind,
    std::string_view text,
    Steps& out) {
  if (text.empty()) {
    return;
  }
  const bool goes_on = open_ && kind_ == kind;
  if (!goes_on && kind == SegmentKind::text && is_blank(text)) {
    spaces_ += text;
    return;
  }
  if (!goes_on) {
    std::string spaces = std::move(spaces_);
    begin(kind, "", out);
    if (kind == SegmentKind::text) {
      spaces += text;
      out.push_back({SegmentStep::What::append, kind, std::move(spaces)});
      return;
    }
  }
  // Character by character would be as many events.
  if (!out.empty() && out.back().what == SegmentStep::What::append) {
    out.back().text += text;
  } else {
    out.push_back({SegmentStep::What::append, kind, std::string(text)});
  }
}

void AnswerSegments::begin(SegmentKind kind, std::string name, Steps& out) {
  end(out);
  open_ = true;
  kind_ = kind;
  spaces_.clear();
  out.push_back({SegmentStep::What::begin, kind, std::move(name)});
}

void AnswerSegments::end(Steps& out) {
  if (open_) {
    out.push_back({SegmentStep::What::end, kind_, ""});
    open_ = false;
  }
}

}  // namespace mlxx::api
